"""Statistics of patterns, from plain counts."""

import pytest

from loop.learning.prediction import FACTOR_BY_FACT, PatternStatistics, compute_statistics
from loop.model.index import Environment, PatternRun, SessionRow
from tests.makers import NOON, make_pattern, make_row

HERE = ("AMD EPYC", None, None, None, "2.4.1", "g++ 12")
UPGRADED = ("AMD EPYC", None, None, None, "2.5.0", "g++ 12")
ONE = make_pattern("one", estimate={"minutes": 0.5})


def rows(
    good: int = 0, broken: int = 0, seconds: float = 10.0, place: tuple[str | None, ...] = HERE
) -> list[SessionRow]:
    """Sessions with one run of `one` each, all of the same time; those that broke were left half way."""
    environment = Environment(**dict(zip(FACTOR_BY_FACT, place, strict=True)))
    runs = [
        PatternRun(
            pattern="one", status="passed" if n < good else "failed", seconds=seconds, started=NOON, whole=n < good
        )
        for n in range(good + broken)
    ]
    return [make_row(n, environment=environment, runs=(run,)) for n, run in enumerate(runs)]


def one(*some: list[SessionRow]) -> PatternStatistics:
    """The statistics of `one`."""
    return compute_statistics({"one": ONE}, [row for part in some for row in part])["one"]


def test_runs_under_another_torch_count_half() -> None:
    """Six are worth three: no longer validated; three new ones win it back."""
    new = one(rows(6), rows(1, place=UPGRADED))
    assert "applied" == new.status
    assert "4 of 4 runs by weight answered" in new.why
    assert "validated" == one(rows(6), rows(3, place=UPGRADED)).status


@pytest.mark.parametrize(("broken", "least"), [(0, 5), (1, 5), (2, 8), (3, 12), (4, 16)])
def test_a_pattern_is_validated_from_so_many_answers_on(broken: int, least: int) -> None:
    """The table of docs/memory.md, so that it can be checked by hand."""
    assert ["applied", "validated"] == [
        one(rows(count, broken)).status.replace("doubtful", "applied") for count in (least - 1, least)
    ]
