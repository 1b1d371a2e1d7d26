"""One case of each kind of fault, on real sessions. `make bench-faults` runs the whole table."""

import itertools
from pathlib import Path

import pytest

from tests.faults import (
    FaultClass,
    children,
    damage,
    documents,
    full_disk,
    kill_points,
    preemption,
    random_kills,
    random_signals,
)
from tests.faults.__main__ import SEED
from tests.faults.concurrency import together

CASES: dict[str, tuple[FaultClass, int]] = {
    "a kill at a random moment": (random_kills, 0),
    "a signal at a random moment": (random_signals, 2),
    "a disk that fails at a named point of the journal": (kill_points, 50),
    "a preemption": (preemption, 0),
    "a full disk": (full_disk, 72),
    "a child that is hard to end": (children, 8),
    "a generated document": (documents, 100),
}
"""Kind of fault to its class, and the number of the case that is run."""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "number"), CASES.values(), ids=CASES.keys())
def test_a_fault_breaks_no_promise(module: FaultClass, number: int, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, the session can be resumed, and no process is left."""
    _, case = next(itertools.islice(module.cases(SEED), number, None))
    (tmp_path / "case").mkdir()
    assert "" == case(tmp_path / "case")


@pytest.mark.slow
def test_damage_is_named_and_changes_no_figure_without_a_word() -> None:
    """Files of sessions, state and cache are damaged."""
    problems = [damage.one_damage(15, number) for number in range(8)]
    assert [] == [broken for broken in problems if broken]


@pytest.mark.slow
def test_sessions_and_grants_at_once_are_all_kept(tmp_path: Path) -> None:
    """Three processes, a session and a grant each."""
    (tmp_path / "case").mkdir()
    assert "" == together(tmp_path / "case", seed="slice", each=1, processes=3)


def test_kill_points_differ() -> None:
    """Each has five faults."""
    points = [point for by_name in kill_points.POINTS.values() for point in by_name.values()]
    assert len(set(points)) == len(points) >= 40
    assert len(list(kill_points.cases(1))) == 5 * len(points)
