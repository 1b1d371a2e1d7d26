"""`loop bisect` on histories that it cannot search, or only in part: message, next command, exit code."""

import os
import re
from pathlib import Path

import pytest

from tests.bisect.histories import blamed, make_history, searched
from tests.repository.test_reading import commit_file as commit
from tests.repository.test_reading import git

FIELDS = {"schema_version", "outcome", "culprits", "range", "probes", "builds"}
BELOW = 'test "$(cat state)" -lt {}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight commits whose file counts from 0."""
    make_history(tmp_path / "r", [str(number) for number in range(8)])
    return tmp_path / "r"


@pytest.mark.parametrize(
    ("outcome", "code", "script"),
    [
        ("no_regression", 0, "true"),
        ("range", 1, f"test $(cat state) != 5 || exit 125; {BELOW.format(5)}"),
        ("inconclusive", 1, "exit 125"),
        ("refused", 2, "no-such-program"),
    ],
)
@pytest.mark.slow
def test_each_outcome_has_its_exit_code(folder: Path, outcome: str, code: int, script: str) -> None:
    """All outcomes have the same fields in JSON; commits are named only with outcomes that name some."""
    ended, answer, _ = searched(folder, "HEAD~7", script)
    assert (code, outcome, 1) == (ended, answer["outcome"], answer["schema_version"]), answer["why"]
    assert set(answer) >= FIELDS
    count = (0, 2) if outcome == "range" else (0, 0)
    assert count == (len(answer["culprits"]), len(answer["range"])), answer["why"]
    assert answer["why"]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"good": "side"}, ["is no ancestor of", "is that one good?"]),
        ({"good": "orphan"}, ["is no ancestor of", "they have no common history"]),
        ({"good": ""}, ["no good revision", "loop bisect --good REV"]),
        (
            {"good": "HEAD", "bad": "HEAD~3"},
            ["is older than good", "they are swapped", "--good HEAD~3 --bad HEAD"],
        ),
        ({"good": "HEAD"}, ["the same commit"]),
        ({"good": "nowhere"}, ["nowhere is no commit"]),
        ({"good": "HEAD~2", "script": ""}, ["no command to run"]),
        ({"good": "HEAD~2", "probe": "maybe"}, ["unknown probe"]),
    ],
)
def test_what_cannot_be_searched_is_refused(folder: Path, terms: dict[str, str], words: list[str]) -> None:
    """The message has the reason and a suggestion; exit code 2; JSON has the same text."""
    git(folder, "checkout", "-q", "-b", "side", "HEAD~2")
    commit(folder, "aside", "x", "aside")
    git(folder, "checkout", "-q", "--orphan", "orphan")
    git(folder, "commit", "-q", "-m", "unrelated")
    git(folder, "checkout", "-q", "main")
    code, answer, talk = searched(folder, **{"script": "true", **terms})
    assert (2, "refused") == (code, answer["outcome"])
    assert [] == [text for text in words if text not in talk or text not in answer["why"]], talk


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("true", ["the bad end passed", "so it is good today", "loop doctor"]),
        ("false", ["the good end fails as well", "it is not good today", "loop doctor"]),
        ('test "$(cat state)" -gt 3', ["are they swapped?", "--good HEAD --bad HEAD~7"]),
    ],
)
@pytest.mark.slow
def test_nobody_is_blamed_for_what_does_not_show_today(folder: Path, script: str, words: list[str]) -> None:
    """No commit is blamed if both ends behave alike today, or the other way round."""
    code, answer, talk = searched(folder, "HEAD~7", script)
    assert (0, "no_regression", []) == (code, answer["outcome"], answer["culprits"])
    assert [] == [text for text in words if text not in talk], talk


@pytest.mark.slow
def test_a_commit_that_hangs_is_skipped(folder: Path, tmp_path: Path) -> None:
    """Its processes are killed, and the search continues with other commits."""
    hang = f"echo $$ >> {tmp_path}/started; sleep 1000 & wait"
    script = f"test $(cat state) != 4 || {{ {hang}; }}; {BELOW.format(2)}"
    code, answer, _ = searched(folder, "HEAD~7", script, probe_limit_s=1.0)
    assert (0, ["commit 2"]) == (code, blamed(answer)), answer["why"]
    (reason,) = answer["skipped"].values()
    assert reason.startswith("the command hangs: killed after 1 s (")
    assert not any(Path(f"/proc/{pid}").exists() for pid in (tmp_path / "started").read_text().split())


@pytest.mark.slow
def test_broken_builds_leave_a_range_or_ask_for_another_end(folder: Path) -> None:
    """Broken commits between the ends leave a range of all; a broken end asks for another end."""
    script = f"case $(cat state) in 0|7) ;; *) echo no headers >&2; exit 125;; esac; {BELOW.format(4)}"
    code, answer, _ = searched(folder, "HEAD~7", script)
    assert (1, "range", 7) == (code, answer["outcome"], len(answer["range"]))
    assert 6 == len(answer["skipped"])
    assert {"exit 125: the command cannot judge it: no headers"} == set(answer["skipped"].values())
    code, answer, talk = searched(folder, "HEAD~6", script)
    assert (1, "inconclusive") == (code, answer["outcome"])
    assert "the good end cannot be tested: exit 125" in answer["why"]
    assert "next: name another good end, one that can be tried: --good REV" in talk


def test_a_repository_that_cannot_be_written_is_refused(folder: Path) -> None:
    """Refused, because git has to store a worktree in it; the advice is a clone."""
    (folder / ".git" / "worktrees").write_text("in the way")
    code, answer, talk = searched(folder, "HEAD~7", BELOW.format(5))
    assert (2, "refused") == (code, answer["outcome"])
    assert "git worktree in" in talk
    assert f"git clone {folder}" in talk
    assert [] == list((Path(os.environ["LOOP_STATE"]) / "worktrees").iterdir())


def test_files_that_git_cannot_check_out_refuse_the_search(folder: Path) -> None:
    """A missing filter refuses the search, and leaves no worktree."""
    (folder / ".git" / "info" / "attributes").write_text("* filter=odd\n")
    git(folder, "config", "filter.odd.smudge", "false")
    git(folder, "config", "filter.odd.required", "true")
    code, answer, talk = searched(folder, "HEAD~7", BELOW.format(5))
    assert (2, "refused") == (code, answer["outcome"])
    assert "a filter its program" in talk
    assert 1 == len(git(folder, "worktree", "list").splitlines())


def test_a_program_that_is_missing_is_no_verdict(folder: Path, tmp_path: Path) -> None:
    """Missing at the good end, it refuses the search; at another commit it counts as that commit's failure."""
    script = f"{tmp_path}/tool {BELOW.format(5)}"
    code, answer, talk = searched(folder, "HEAD~7", script)
    assert (2, "refused") == (code, answer["outcome"])
    assert "the command cannot be run at the good end" in talk
    assert "exit 127" in talk
    assert "git worktree add TRY" in talk
    (tmp_path / "tool").write_text('#!/bin/sh\nshift\ntest "$1" -lt 5 || exit 127\n')
    (tmp_path / "tool").chmod(0o755)
    code, answer, _ = searched(folder, "HEAD~7", script)
    assert (0, ["commit 5"]) == (code, blamed(answer)), answer["why"]


def test_a_shallow_clone_is_searched_as_far_as_it_reaches(folder: Path, tmp_path: Path) -> None:
    """Searched as far as its history reaches; beyond it, the message says how to fetch the rest."""
    oldest, shallow = git(folder, "rev-parse", "HEAD~7"), tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "5", f"file://{folder}", str(shallow))
    code, answer, _ = searched(shallow, "HEAD~4", BELOW.format(5))
    assert (0, ["commit 5"]) == (code, blamed(answer))
    code, answer, talk = searched(shallow, oldest, BELOW.format(5))
    assert (2, "refused") == (code, answer["outcome"])
    assert "git fetch --unshallow" in talk


@pytest.fixture
def with_submodule(folder: Path, tmp_path: Path) -> Path:
    """A repository whose later commits step through the commits of a submodule, of which the fourth is bad."""
    commits = make_history(tmp_path / "library", [str(number) for number in range(6)])
    allow = ("-c", "protocol.file.allow=always")
    git(folder, *allow, "submodule", "--quiet", "add", str(tmp_path / "library"), "lib")
    for number, revision in enumerate(commits):
        git(folder / "lib", "checkout", "-q", revision)
        commit(folder, f"library {number}", str(number), "notes")
    return folder


def test_submodules_hold_what_a_commit_names(with_submodule: Path) -> None:
    """The worktree's submodule is filled from the checkout's; the checkout stays as it is."""
    script = "test ! -e lib || test $(cat lib/state) -lt 3"
    state = git(with_submodule, "status", "--porcelain"), git(with_submodule, "submodule", "status")
    code, answer, _ = searched(with_submodule, "HEAD~9", script)
    assert (0, ["library 3"]) == (code, blamed(answer)), answer["why"]
    assert state == (git(with_submodule, "status", "--porcelain"), git(with_submodule, "submodule", "status"))


def test_a_command_runs_where_the_user_stands(with_submodule: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the target lies elsewhere in the repository."""
    commit(with_submodule, "documents", "x", "docs/notes")
    monkeypatch.chdir(with_submodule)
    code, answer, _ = searched(with_submodule / "docs", "HEAD~5", "test $(cat lib/state) -lt 3")
    assert (0, ["library 3"]) == (code, blamed(answer)), answer["why"]


def test_commits_whose_submodule_is_missing_are_skipped(with_submodule: Path, tmp_path: Path) -> None:
    """The commits that need it are skipped."""
    missing = "0123456789abcdef0123456789abcdef01234567"
    git(with_submodule, "update-index", "--cacheinfo", f"160000,{missing},lib")
    git(with_submodule, "commit", "-q", "-m", "lost")
    code, answer, _ = searched(with_submodule, "HEAD~3", "true")
    assert (1, "inconclusive") == (code, answer["outcome"])
    assert f"its submodule lib is at {missing[:12]}, which is not in {with_submodule}/lib" in answer["why"]
    assert "fetch origin" in answer["why"]


def test_a_detached_head_is_the_bad_end_and_stays(folder: Path) -> None:
    """It stays detached, and is the bad end."""
    git(folder, "checkout", "-q", "--detach", "HEAD~1")
    head = git(folder, "rev-parse", "HEAD")
    code, answer, _ = searched(folder, "HEAD~6", BELOW.format(5))
    assert (0, ["commit 5"]) == (code, blamed(answer))
    assert head == git(folder, "rev-parse", "HEAD")
    assert "" == git(folder, "branch", "--show-current")


@pytest.mark.slow
def test_a_submodule_that_is_not_checked_out_now(with_submodule: Path, tmp_path: Path) -> None:
    """It is filled from git's own copy; without a copy the message says how to fetch it."""
    script = "test ! -e lib || test $(cat lib/state) -lt 3"
    git(with_submodule, "submodule", "--quiet", "deinit", "--force", "lib")
    code, answer, _ = searched(with_submodule, "HEAD~9", script)
    assert (0, ["library 3"]) == (code, blamed(answer)), answer["why"]
    git(tmp_path, "clone", "-q", str(with_submodule), str(tmp_path / "clone"))
    _, answer, _ = searched(tmp_path / "clone", "HEAD~4", "test $(cat lib/state) -lt 3")
    assert f"submodule lib is empty in its worktree: `git -C {tmp_path}/clone submodule update" in answer["why"]


def test_a_worktree_of_the_users_on_a_disk_that_is_away(folder: Path, tmp_path: Path) -> None:
    """Git would forget it by `worktree prune`; loop takes away its own alone."""
    git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "away"))
    (tmp_path / "away").rename(tmp_path / "unmounted")
    assert 0 == searched(folder, "HEAD~7", BELOW.format(5))[0]
    assert str(tmp_path / "away") in git(folder, "worktree", "list")
    assert 2 == len(git(folder, "worktree", "list").splitlines())


def test_an_open_answer_says_how_to_measure_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated search uses stored probes; with `--again`, which the advice names, commits are tried again."""
    monkeypatch.setattr("loop.bisect.search.RUNS_MOST", 6)
    script = f"echo >> {tmp_path}/asked; test $(($(wc -l < {tmp_path}/asked) % 2)) = 0"
    code, answer, talk = searched(folder, "HEAD~1", script)
    assert (1, "inconclusive") == (code, answer["outcome"]), answer
    count = (tmp_path / "asked").stat().st_size
    searched(folder, "HEAD~1", script)
    assert count == (tmp_path / "asked").stat().st_size
    assert "next: the same command with --again" in talk
    _, _, talk = searched(folder, "HEAD~1", script, again=True)
    assert 2 * count == (tmp_path / "asked").stat().st_size
    assert re.search(r"1: [0-9a-f]{12} right in [012] of 2 runs \(end: ", talk)
    searched(folder, "HEAD~1", script)
    assert 2 * count == (tmp_path / "asked").stat().st_size
