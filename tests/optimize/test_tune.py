"""`tune`: values of a kernel are searched under the gate, the best become data of the target on a branch."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from loop.base.errors import DefinitionError
from loop.library import targets
from loop.library.definitions import find_project
from loop.model.target import Tuning
from loop.optimize import tuning
from loop.optimize.model import TriedPoint
from loop.optimize.tuning import PointSearch
from tests.noise import timed
from tests.optimize.test_session import LINE, SIZES, in_haste
from tests.projects import KERNEL, loop, make_project
from tests.repository.test_reading import git, put_under_git

GUARDED = KERNEL.replace(
    LINE,
    '_Static_assert(WORK_AGAIN != 7, "seven is not allowed");\n'
    f"  for (volatile int again = 0; again < WORK_AGAIN; again++) {LINE}",
)
"""It works once, twice or forty times; zero times is wrong, seven times does not compile."""
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
def untrusted(tmp_path: Path) -> Path:
    """A kernel with something to tune."""
    folder = make_project(tmp_path / "project", GUARDED)
    manifest = (folder / "target.yaml").read_text().replace(*SIZES).replace("[-O1]", '[-O1, "{tuned}"]')
    (folder / "target.yaml").write_text(manifest + TUNING)
    return folder


@pytest.fixture
def folder(untrusted: Path) -> Path:
    """The same with a plan, committed and trusted."""
    (untrusted / "plans").mkdir()
    (untrusted / "plans" / "tune.yaml").write_text(PLAN)
    in_haste(untrusted, "tuning")
    put_under_git(untrusted, "slow")
    assert 0 == loop("trust", str(untrusted)).returncode
    return untrusted


def searches(session: Path) -> list[dict[str, Any]]:
    """The steps of a session that searched."""
    lines = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "finished" and line["step"] == "tune"]


def trials(folder: Path) -> dict[int, dict[str, Any]]:
    """Value to trial in the first search of the only session."""
    (session,) = (folder / "sessions").iterdir()
    return {trial["values"]["again"]: trial for trial in searches(session)[0]["output"].get("trials", ())}


@timed
@pytest.mark.slow
def test_the_best_values_are_found_and_offered(folder: Path, tmp_path: Path) -> None:
    """Losers are on record with their reasons; the manifest changes on a branch, in one place, comments stay."""
    done = loop("run", "session", "tune", "--target", str(folder))
    assert 0 == done.returncode, done.stderr
    assert "change 1 kept: " in done.stderr, done.stderr
    (session,) = (tmp_path / "sessions").iterdir()
    tuned, outcomes = searches(session), trials(tmp_path)
    assert {0: "wrong", 1: "best", 2: "timed", 7: "refused", 40: "incumbent"} == {
        again: trial["outcome"] for again, trial in outcomes.items()
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
    assert "1 of 1 change kept, `ours` " in report.splitlines()[2]
    assert "of 4 others 1 did not compile, 1 went wrong, 2 timed, the best at" in done.stderr
    for words in ("othing was verified", "othing was measured", "no speed was measured"):
        assert words not in report


TIRES = GUARDED.replace(
    "  for (volatile int again",
    """  static int calls = 0;
  if (WORK_AGAIN == 2 && ++calls > 120) { TIRED }
  for (volatile int again""",
)
"""Computing twice, it gives up after a while: not while it is verified, but while it is timed."""


@timed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tired", "words"),
    [
        ("__builtin_abort();", ("again 2 could not be timed on", "SIGABRT")),
        pytest.param(
            "static const double nine = 9.0; attributes = &nine;",
            ("while it was timed: ", "elements wrong"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_point_that_fails_while_timed_is_alone_in_that(
    tired: str, words: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    """It is on record as wrong, with its message; the others are timed all the same."""
    (folder / "scale.c").write_text(TIRES.replace("TIRED", tired))
    assert 0 == loop("trust", str(folder)).returncode
    done = loop("run", "session", "tune", "--target", str(folder))
    outcomes = trials(tmp_path)
    assert {0: "wrong", 1: "best", 2: "wrong", 7: "refused", 40: "incumbent"} == {
        again: trial["outcome"] for again, trial in outcomes.items()
    }, done.stderr
    assert all(word in outcomes[2]["reason"] for word in words)
    assert "of 4 others 1 did not compile, 2 went wrong, 1 timed, the best at" in done.stderr
    assert 0 == done.returncode, done.stderr


def search(*trials: TriedPoint) -> PointSearch:
    """A search with these points; those that were timed may still win."""
    values = {"again": [0, 1, 2, 7, 40]}
    fields = {"title": "work", "variant": "ours", "macro": "WORK", "values": values}
    tuned = Tuning.model_validate({**fields, "best": {"cpu": {"again": 40}}, "workloads": [{"N": 64, "M": 256}]})
    labelled = {tuning.point_label(trial.values): trial for trial in trials}
    sides = {label: cast(Any, None) for label, trial in labelled.items() if trial.outcome == "timed"}
    nothing = cast(Any, None)
    return PointSearch(nothing, nothing, "work", tuned, "cpu", {"again": 40}, labelled, sides)


def point(again: int, outcome: str, **fields: Any) -> TriedPoint:
    """The trial of one point."""
    return TriedPoint.model_validate({"tuning": "work", "values": {"again": again}, "outcome": outcome, **fields})


def test_the_incumbent_stays_where_nothing_is_faster(tmp_path: Path) -> None:
    """No edit is made; the message has the results of other points."""
    tried = search(point(0, "wrong"), point(1, "timed", ratio=1.001), point(7, "refused"))
    output = tuning._propose_best(tried, cast(Any, None), 0.01)
    assert (True, None) == (output.ok, output.brief)
    assert "the incumbent stays (again 40); of 4 others 1 did not compile, 1 went wrong, 1 timed" in output.message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("variant: ours", "variant: theirs", "variant: expected a compiled variant (ours), got 'theirs'"),
        ('"{tuned}"', "-g", "{tuned} among the flags of ours"),
        ("{again: 40}}", "{again: 3}}", "best.cpu.again: expected one of 0, 1, 2, 7, 40, got 3"),
    ],
)
def test_a_tuning_that_makes_no_sense_is_refused(untrusted: Path, old: str, new: str, words: str) -> None:
    """The error comes before anything runs, and has the place."""
    manifest = untrusted / "target.yaml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    with pytest.raises(DefinitionError) as refused:
        targets.read_target(find_project(untrusted, untrusted))
    assert words in refused.value.message
    assert "target.yaml:" in refused.value.message
