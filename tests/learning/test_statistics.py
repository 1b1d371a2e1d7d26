"""Statistics of patterns, from plain counts."""

import random

import pytest

from loop.learning.prediction import FACTS, PatternStatistics, of_patterns, rate
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.money import Saving
from tests.makers import NOON, make_pattern

HERE = ("AMD EPYC", None, None, None, "2.4.1", "g++ 12")
UPGRADED = ("AMD EPYC", None, None, None, "2.5.0", "g++ 12")
ONE = make_pattern("one", estimate={"minutes": 0.5})


def rows(
    good: int = 0, broken: int = 0, seconds: float = 10.0, place: tuple[str | None, ...] = HERE
) -> list[SessionRow]:
    """Sessions with one run of `one` each, all of the same time; those that broke were left half way."""
    environment = Environment(**dict(zip(FACTS, place, strict=True)))
    runs = [
        PatternRun(
            pattern="one", status="passed" if n < good else "failed", seconds=seconds, started=NOON, whole=n < good
        )
        for n in range(good + broken)
    ]
    return [
        SessionRow(
            id=f"s{n}", started=NOON, target="t", plan="p", device="cpu", status="passed",
            environment=environment, runs=(run,),
        )
        for n, run in enumerate(runs)
    ]  # fmt: skip


def one(*some: list[SessionRow]) -> PatternStatistics:
    """The statistics of `one`."""
    return of_patterns({"one": ONE}, [row for part in some for row in part])["one"]


def test_a_rate_is_jeffreys_beta() -> None:
    """Nine of ten: Beta(9.5, 1.5), as draws from it have it."""
    found, chance = rate(9, 1), random.Random(1)
    draws = sorted(chance.betavariate(9.5, 1.5) for _ in range(40_000))
    assert pytest.approx((draws[2_000], 9.5 / 11, draws[38_000]), abs=4e-3) == found


def test_without_runs_nothing_is_claimed() -> None:
    """Proposed, with the author's estimate."""
    found = one()
    assert ("proposed", 0, None) == (found.status, found.applied, found.last_used)
    assert pytest.approx(30.0) == found.seconds


def test_runs_under_another_torch_count_half() -> None:
    """Six are worth three: no longer validated; three new ones win it back."""
    new = one(rows(6), rows(1, place=UPGRADED))
    assert "applied" == new.status
    assert "4 of 4 runs by weight answered" in new.why
    assert "validated" == one(rows(6), rows(3, place=UPGRADED)).status


@pytest.mark.parametrize(("broken", "least"), [(0, 5), (1, 7), (2, 10), (3, 13), (4, 15)])
def test_a_pattern_is_validated_from_so_many_answers_on(broken: int, least: int) -> None:
    """The table of docs/memory.md, so that it can be checked by hand."""
    assert ["applied", "validated"] == [
        one(rows(count, broken)).status.replace("doubtful", "applied") for count in (least - 1, least)
    ]


def test_what_was_spared_is_that_of_its_own_pattern() -> None:
    """Summed up over sessions; nothing where nothing was."""
    saving = Saving(pattern="one", source="s", minutes=5.0, usd=2.5)
    seen = [row.model_copy(update={"savings": (saving,)}) for row in rows(2)]
    found = of_patterns({"one": ONE, "two": make_pattern("two")}, seen)
    assert (10.0, 5.0) == (found["one"].saved_minutes, found["one"].saved_usd)
    assert 0 == found["two"].saved_minutes
