"""`loop bisect`, and the search that a session begins, also of Python: nothing is touched."""

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from loop.model.bisect import Metric, Probe
from tests.bisect.histories import blamed, make_history, searched
from tests.noise import timed
from tests.optimize.test_python import VARIANTS, WHOLE
from tests.optimize.test_session import LINE, SIZES
from tests.projects import FUNCTIONS, KERNEL, TARGET, add_quick_plan, kill, loop, make_project, start
from tests.repository.test_reading import commit_file as commit
from tests.repository.test_reading import git, put_under_git

SLOW = KERNEL.replace(LINE, f"for (volatile int again = 0; again < 8; again++) {LINE}")
WRONG = KERNEL.replace("x[i] * (float)", "(i == 7 ? 0 : x[i]) * (float)")


def state(folder: Path) -> tuple[str, ...]:
    """The state of a repository that a search may not change."""
    calls = (["status", "--porcelain"], ["branch"], ["stash", "list"], ["worktree", "list"], ["rev-parse", "HEAD"])
    return tuple(git(folder, *words) for words in calls)


@pytest.mark.slow
def test_a_command_that_fails_from_a_commit_on(tmp_path: Path) -> None:
    """The answer names the commit with its difference; commits that cannot be judged are skipped."""
    folder = tmp_path / "r"
    commits = make_history(folder, [str(number) for number in range(24)], {11: "no"})
    hook = folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (folder / "state").write_text("uncommitted")
    unchanged = state(folder)
    script = 'test ! -e broken || { echo no headers >&2; exit 125; }; test "$(cat state)" -lt 14'
    code, answer, _ = searched(folder, commits[0], script)
    assert (0, "culprit") == (code, answer["outcome"]), answer
    assert [commits[14]] == [culprit["commit"] for culprit in answer["culprits"]]
    assert commits[14][:12] in answer["why"]
    assert "+14" in answer["difference"]
    assert {"schema_version", "outcome", "culprits", "range", "probes", "builds"} <= set(answer)
    assert unchanged == state(folder)
    assert not (tmp_path / "ran").exists()


def test_a_second_search_asks_nothing_again(tmp_path: Path) -> None:
    """A repeated search uses the stored probes."""
    folder = tmp_path / "r"
    commits = make_history(folder, [str(number) for number in range(10)])
    script = f'echo once >> {tmp_path}/asked; test "$(cat state)" -lt 4'
    first = searched(folder, commits[0], script)[1]
    tries = (tmp_path / "asked").read_text()
    assert first["culprits"] == searched(folder, commits[0], script)[1]["culprits"] != []
    assert tries == (tmp_path / "asked").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed and trusted project of the tiny kernel."""
    folder = make_project(tmp_path / "project")
    (folder / "target.yaml").write_text((folder / "target.yaml").read_text().replace(*SIZES))
    add_quick_plan(folder)
    put_under_git(folder, "good")
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def develop(folder: Path, kernels: dict[int, str], count: int = 8) -> list[str]:
    """Commits that add a remark; some bring another kernel, which stays. Their hashes."""
    text, hashes = (folder / "scale.c").read_text(), []
    for number in range(count):
        text = kernels.get(number, text)
        hashes.append(commit(folder, f"change {number}", f"{text}// remark {number}\n", "scale.c"))
    return hashes


@timed
@pytest.mark.slow
def test_a_slower_kernel_names_its_commit(project: Path) -> None:
    """A commit that does not build is skipped; the checkout stays as it is."""
    commits = develop(project, {2: KERNEL.replace("return 0;", "return oops;"), 3: KERNEL, 5: SLOW})
    unchanged = state(project)
    words = ("--good", "HEAD~8", "--target", str(project), "--threads", "1", "--json")
    done = loop("bisect", *words)
    code, answer = done.returncode, json.loads(done.stdout)
    assert (0, "culprit") == (code, answer["outcome"]), answer
    assert [commits[5]] == [culprit["commit"] for culprit in answer["culprits"]]
    assert answer["ratio"] < 0.5
    assert all("does not build" in reason for reason in answer["skipped"].values())
    assert unchanged == state(project)


@pytest.mark.slow
def test_a_history_that_changes_nothing_blames_nobody(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its ends are tried, once; on a busy machine the outcome may stay inconclusive."""
    monkeypatch.setattr("loop.bisect.trying.GATE_LIMIT_S", 3.0)
    develop(project, {}, 3)
    code, answer, _ = searched(project, "HEAD~3", probe=None, threads=1)
    assert (code, answer["outcome"]) in ((0, "no_regression"), (1, "inconclusive")), answer
    assert ([], []) == (answer["culprits"], answer["range"])
    assert 2 >= answer["builds"]
    assert {git(project, "rev-parse", "HEAD")} == {probe["commit"] for probe in answer["probes"]}
    second = searched(project, "HEAD~3", probe=None, threads=1)[1]
    assert (answer["why"], answer["probes"]) == (second["why"], second["probes"])


@pytest.mark.slow
def test_a_wrong_kernel_names_its_commit_also_when_it_is_none(project: Path) -> None:
    """Uncommitted changes are a candidate, too."""
    commits = develop(project, {4: WRONG})
    code, answer, _ = searched(project, "HEAD~8", probe=None, metric="correctness")
    assert (0, [commits[4]]) == (code, [culprit["commit"] for culprit in answer["culprits"]]), answer
    git(project, "reset", "-q", "--hard", commits[3])
    (project / "scale.c").write_text(WRONG)
    code, answer, _ = searched(project, "HEAD", probe=None, metric="correctness")
    assert (0, ["uncommitted"]) == (code, [culprit["commit"] for culprit in answer["culprits"]]), answer
    assert "scale.c" in answer["culprits"][0]["subject"]
    assert WRONG == (project / "scale.c").read_text()


@pytest.mark.slow
def test_a_bad_end_without_a_speed_has_a_next_command(project: Path) -> None:
    """A wrong end: search for correctness. An end that does not build: mend its line."""
    develop(project, {2: WRONG}, 4)
    code, answer, talk = searched(project, "HEAD~4", probe=None, threads=1)
    assert (1, "inconclusive") == (code, answer["outcome"]), answer
    assert "next: the same command with --metric correctness" in talk
    (project / "scale.c").write_text(KERNEL.replace("return 0;", "return oops;"))
    code, answer, talk = searched(project, "HEAD~4", probe=None, metric="correctness")
    assert (1, "inconclusive") == (code, answer["outcome"]), answer
    assert "next: mend it (does not build: scale.c:" in talk
    assert "0 observations" in talk
    assert "Judged on" not in talk


@timed
@pytest.mark.slow
def test_a_session_that_finds_a_regression_names_its_commit(project: Path, tmp_path: Path) -> None:
    """The report names it without another command."""
    good = loop("run", "session", "mine", "--target", str(project), "--threads", "1")
    assert 0 == good.returncode, good.stderr
    commits = develop(project, {3: SLOW}, 6)
    done = loop("run", "session", "mine", "--target", str(project), "--threads", "1")
    assert 1 == done.returncode, done.stderr
    assert "git-bisect answers" in done.stderr
    session = sorted((tmp_path / "sessions").iterdir())[-1]
    report = (session / "report.md").read_text()
    assert "Which commit made ours regress" in report
    assert f"`{commits[3][:12]}` change 3" in report
    assert 1 == len(git(project, "worktree", "list").splitlines())


def test_a_worktree_that_a_kill_left_behind_is_taken_away(tmp_path: Path) -> None:
    """The next search removes it."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["1", "2", "3"])
    leftover = Path(os.environ["LOOP_STATE"]) / "worktrees" / "bisect-999999999-trial"
    git(folder, "worktree", "add", "--detach", str(leftover), commits[0])
    assert 0 == searched(folder, commits[0], "test $(cat state) -lt 3")[0]
    assert not leftover.exists()
    assert 1 == len(git(folder, "worktree", "list").splitlines())


def test_a_merge_is_looked_into(tmp_path: Path) -> None:
    """The branch's commit is named if it is to blame; the merge, if neither side alone is."""
    folder = tmp_path / "r"
    commits = make_history(folder, ["1", "2"])
    for name, file in (("harmless", "h"), ("fails", "fails"), ("other", "o"), ("half", "left")):
        git(folder, "checkout", "-q", "-b", name, commits[1])
        commit(folder, f"before {name}", "x", f"{name}.txt")
        commit(folder, f"brings {name}", "x", file)
        commit(folder, f"after {name}", "y", f"{name}.txt")
        git(folder, "checkout", "-q", "main")
        commit(folder, f"main beside {name}", "x", "right")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge one", "harmless", "fails", "other")
    script = "test ! -e fails && test ! -e left -o ! -e right"
    code, answer, _ = searched(folder, commits[0], script)
    assert (0, ["brings fails"]) == (code, blamed(answer)), answer
    assert 1 == answer["why"].count("it came with the merge")
    git(folder, "reset", "-q", "--hard", "HEAD~1")
    git(folder, "merge", "-q", "--no-ff", "-m", "merge two", "half")
    code, answer, _ = searched(folder, commits[0], script)
    assert (0, ["merge two"]) == (code, blamed(answer)), answer
    assert "on the branch that it merges: no regression, its commits are good" in answer["why"]


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    """A repeated search uses the probes of the killed one; no worktree is left of it."""
    folder = tmp_path / "r"
    commits = make_history(folder, [str(number) for number in range(12)])
    script = f'cat state >> {tmp_path}/asked; echo >> {tmp_path}/asked; sleep 0.3; test "$(cat state)" -lt 7'
    words = ("--good", commits[0], "--target", str(folder), "--probe", "exit", "--json")
    process = start("bisect", *words, "--", "sh", "-c", script)
    deadline = time.monotonic() + 30
    while not (tmp_path / "asked").exists() or len((tmp_path / "asked").read_text().split()) < 6:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kill(process)
    before = (tmp_path / "asked").read_text().split()
    done = loop("bisect", *words, "--", "sh", "-c", script)
    assert (0, ["commit 7"]) == (done.returncode, blamed(json.loads(done.stdout)))
    after = (tmp_path / "asked").read_text().split()[len(before) :]
    assert not set(before[:4]) & set(after[1:])
    assert 1 == len(git(folder, "worktree", "list").splitlines())


SLOWER = WHOLE.replace("    return", "    x = x.clone().clone().clone()\n    return")


@timed
@pytest.mark.slow
def test_the_commit_that_made_it_slower_is_found(tmp_path: Path) -> None:
    """It is found among commits that add a comment; the checkout stays as it is."""
    folder = tmp_path / "project"
    folder.mkdir()
    head = TARGET.partition("  ours: ")[0].replace("{N: 3, M: [5, 17]}", "{N: 64, M: 256}")
    (folder / "target.yaml").write_text(head + VARIANTS)
    (folder / "functions.py").write_text(FUNCTIONS)
    git(folder, "init", "-q", "-b", "main")
    for number, text in enumerate([WHOLE, WHOLE, SLOWER, SLOWER]):
        (folder / "mine.py").write_text(f"{text}# {number}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"change {number}")
    assert 0 == loop("trust", str(folder)).returncode
    words = ("--good", "HEAD~3", "--variant", "ours", "--threads", "1", "--seed", "1", "--json")
    done = loop("bisect", "--target", str(folder), *words)
    assert 0 == done.returncode, done.stderr
    reply = json.loads(done.stdout)
    assert ("culprit", git(folder, "rev-parse", "HEAD~1")[:12]) == (reply["outcome"], reply["why"].split()[1][:12])
    assert f"{SLOWER}# 3\n" == (folder / "mine.py").read_text()


def test_a_probe_says_what_its_values_mean() -> None:
    """The text is in words; signs and logarithms are for the report's table."""
    base: dict[str, Any] = {"commit": "c" * 40, "against": "a" * 40, "why": "probe"}
    for fields, metric, expected in (
        ({"status": "measured", "values": (1.0, 0.0)}, "correctness", "right in 1 of 2 runs"),
        ({"status": "measured", "values": (0.0953,)}, "latency", f"10.0 % slower than {'a' * 12}"),
        (
            {"status": "measured", "values": (-0.01, -0.03)},
            "latency",
            "2.0 % faster than aaaaaaaaaaaa, mean of 2 pairs",
        ),
        ({"status": "broken", "reason": "no build"}, "latency", "cannot be tried: no build"),
        ({"status": "lost", "reason": "it ended"}, "correctness", "no result: it ended"),
    ):
        assert expected == Probe.model_validate(base | fields).describe(cast(Metric, metric))
