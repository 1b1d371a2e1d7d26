"""`tune`: values of a kernel are searched under the gate, the best become data of the target on a branch."""

import json
from pathlib import Path

import pytest
import yaml

from tests.commands.projects import KERNEL, loop, make_project
from tests.commands.test_optimize import LINE, SIZES, in_haste
from tests.repository.test_reading import git

GUARDED = KERNEL.replace(
    LINE,
    '_Static_assert(WORK_AGAIN != 7, "seven is not allowed");\n'
    f"  for (volatile int again = 0; again < WORK_AGAIN; again++) {LINE}",
)
"""Its work once, twice, forty times; not at all, which is wrong; seven times, which does not compile."""
TUNING = """
tuning:
  work:  # how often
    title: how often everything is computed
    variant: ours
    macro: WORK
    values: {again: [0, 1, 2, 7, 40]}
    best: {cpu: {again: 40}}  # slow
    workloads: [{N: 64, M: 256}]
"""
PLAN = """
format: 1
name: tune
title: Tune it
patterns: [single-compilation-unit, tuning]
workloads: [small]
budget: {minutes: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A kernel with something to tune, committed and trusted."""
    folder = make_project(tmp_path / "project", GUARDED)
    manifest = (folder / "target.yaml").read_text().replace(*SIZES).replace("[-O1]", '[-O1, "{tuned}"]')
    (folder / "target.yaml").write_text(manifest + TUNING)
    (folder / "plans").mkdir()
    (folder / "plans" / "tune.yaml").write_text(PLAN)
    in_haste(folder, "tuning")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "slow")
    assert 0 == loop("trust", str(folder)).returncode
    return folder


@pytest.mark.slow
def test_the_best_values_are_found_and_offered(folder: Path, tmp_path: Path) -> None:
    """Losers are on record with their reasons; the manifest changes on a branch, in one place, comments stay."""
    done = loop("run", "session", "tune", "--target", str(folder))
    assert 0 == done.returncode, done.stderr
    assert "change 1 kept: " in done.stderr, done.stderr
    (session,) = (tmp_path / "sessions").iterdir()
    lines = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    tuned = [line for line in lines if line["event"] == "finished" and line["step"] == "tune"]
    outcomes = {one["values"]["again"]: one for one in tuned[0]["output"]["trials"]}
    assert {0: "wrong", 1: "best", 2: "timed", 7: "refused", 40: "incumbent"} == {
        again: one["outcome"] for again, one in outcomes.items()
    }
    assert "seven is not allowed" in outcomes[7]["reason"]
    assert "elements wrong" in outcomes[0]["reason"]
    assert outcomes[1]["ratio"] > outcomes[2]["ratio"] > 1.5
    assert ["nothing more to tune here"] == [line["message"] for line in tuned[1:]]
    offered = git(folder, "show", f"loop/{session.name}:target.yaml")
    assert {"again": 1} == yaml.safe_load(offered)["tuning"]["work"]["best"]["cpu"]
    assert offered.count("#") == (folder / "target.yaml").read_text().count("#")
    assert {"again": 40} == yaml.safe_load((folder / "target.yaml").read_text())["tuning"]["work"]["best"]["cpu"]
    report = (session / "report.md").read_text()
    assert "again 7" in report
    assert "seven is not allowed" in report


@pytest.mark.slow
def test_the_incumbent_stays_where_nothing_is_faster(folder: Path) -> None:
    """No edit, nothing to be judged, and the session passes."""
    manifest = folder / "target.yaml"
    manifest.write_text(manifest.read_text().replace("{cpu: {again: 40}}", "{cpu: {again: 1}}"))
    assert 0 == loop("trust", str(folder)).returncode
    done = loop("run", "session", "tune", "--target", str(folder))
    assert 0 == done.returncode, done.stderr
    assert "the incumbent stays (again 1)" in done.stderr
    assert "change 1" not in done.stderr
    assert "loop/" not in git(folder, "branch")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "variant: ours",
            "variant: theirs",
            "tuning.work.variant: expected a compiled variant (ours), got 'theirs'",
        ),
        ("best: {cpu: {again: 40}}", "best: {cpu: {}}", "best.cpu: expected values for again, got none"),
        ("macro: WORK", "macro: work", "tuning.work.macro"),
        ('"{tuned}"', "-g", "{tuned} among the flags of ours"),
        ("[{N: 64, M: 256}]", "[{N: 64, K: 256}]", "tuning.work.workloads.0"),
    ],
)
def test_a_tuning_that_makes_no_sense_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    """Before anything runs, with its place."""
    manifest = folder / "target.yaml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    done = loop("kernels", "list", "--target", str(folder))
    assert 2 == done.returncode, done.stderr
    assert said in done.stderr
    assert "target.yaml:" in done.stderr
