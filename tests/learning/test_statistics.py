"""Statistics of patterns, from plain counts."""

import random

import pytest

from loop.learning.durations import FACTS
from loop.learning.model import Saved
from loop.learning.statistics import Run, of_pattern, of_patterns, rate
from loop.model.history import HistorySession
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.money import Saving
from tests.makers import NOON

HERE = ("AMD EPYC", None, None, None, "2.4.1", "g++ 12")
UPGRADED = ("AMD EPYC", None, None, None, "2.5.0", "g++ 12")


def runs(
    successes: int = 0, broken: int = 0, seconds: float = 10.0, place: tuple[str | None, ...] = HERE
) -> list[Run]:
    """Runs of `one`, all of the same time; those that broke were left half way."""
    environment = Environment(**dict(zip(FACTS, place, strict=True)))
    found = []
    for number in range(successes + broken):
        good = number < successes
        run = PatternRun(
            pattern="one", status="passed" if good else "failed", seconds=seconds, started=NOON, whole=good
        )
        row = SessionRow(
            id=f"s{number}", started=NOON, target="t", plan="p", device="cpu", status="passed",
            environment=environment, runs=(run,),
        )  # fmt: skip
        found.append((row, run))
    return found


def rows(*found: list[Run], **fields: object) -> list[SessionRow]:
    """Their sessions."""
    return [row.model_copy(update=fields) for some in found for row, _ in some]


def test_a_rate_is_jeffreys_beta() -> None:
    """Nine of ten: Beta(9.5, 1.5), as draws from it have it."""
    found, chance = rate(9, 1), random.Random(1)
    draws = sorted(chance.betavariate(9.5, 1.5) for _ in range(40_000))
    assert pytest.approx(9.5 / 11) == found.mean
    assert pytest.approx((draws[2_000], draws[38_000]), abs=4e-3) == (found.low, found.high)


def test_without_runs_nothing_is_claimed() -> None:
    """Proposed, with the author's estimate."""
    found = of_patterns({"one": 30.0}, [])["one"]
    assert ("proposed", 0, "") == (found.standing, found.applied, found.last)
    assert pytest.approx(30.0) == found.duration.seconds


@pytest.mark.parametrize(
    ("successes", "broken", "standing"),
    [
        (1, 0, "applied"),
        (4, 0, "applied"),
        (5, 0, "validated"),
        (20, 2, "validated"),
        (6, 3, "applied"),
        (2, 3, "doubtful"),
        (4, 4, "doubtful"),
        (1, 9, "retired"),
    ],
)
def test_the_ladder(successes: int, broken: int, standing: str) -> None:
    """Enough successes and a lower bound above the bar; below it, doubts."""
    assert standing == of_pattern("one", 30.0, [*runs(successes, broken)], (), HERE).standing


def test_an_upgrade_lowers_confidence() -> None:
    """Six runs under another torch are worth three: no longer validated, and the reason is named."""
    before = of_pattern("one", 30.0, [*runs(6)], (), HERE)
    after = of_pattern("one", 30.0, [*runs(6)], (), UPGRADED)
    assert ("validated", "applied") == (before.standing, after.standing)
    assert after.success.low < before.success.low
    assert "3 of 3 runs by weight answered (6 in all; torch changed)" in after.why


def test_new_runs_under_the_new_toolchain_win_it_back() -> None:
    """With those before at their weight."""
    found = of_pattern("one", 30.0, [*runs(6), *runs(3, place=UPGRADED)], (), UPGRADED)
    assert "validated" == found.standing
    assert [(6, 0.5), (3, 1.0)] == [(scope.successes, scope.weight) for scope in found.scopes]


def test_here_is_where_the_last_session_ran() -> None:
    """When nobody says otherwise."""
    found = of_patterns({}, rows(runs(6), runs(9, place=UPGRADED)))["one"]
    assert {HERE: 0.5, UPGRADED: 1.0} == {scope.place: scope.weight for scope in found.scopes}


@pytest.mark.parametrize(("broken", "least"), [(0, 5), (1, 7), (2, 10), (3, 13), (4, 15)])
def test_a_pattern_is_validated_from_so_many_answers_on(broken: int, least: int) -> None:
    """The table of docs/memory.md, so that it can be checked by hand."""
    found = [of_pattern("one", 30.0, [*runs(count, broken)], (), HERE).standing for count in (least - 1, least)]
    assert "validated" != found[0]
    assert "validated" == found[1]


def test_times_are_shrunk_to_the_estimate() -> None:
    """Between both, nearer to the runs."""
    found = of_pattern("one", 30.0, [*runs(2, seconds=10.0)], None, HERE)
    assert 10.0 < found.duration.seconds < 11.0


def test_what_was_spared_is_that_of_its_own_pattern() -> None:
    """None where nothing was."""
    saved = Saved("one", 2, 10.0, 5.0)
    spared = [Saving(pattern="one", source="s", minutes=5.0, usd=2.5)]
    found = of_patterns({"one": 30.0, "two": 30.0}, rows(runs(2), savings=spared))
    assert (saved, None) == (found["one"].saved, found["two"].saved)


def test_a_pattern_that_is_not_defined_any_more_keeps_its_runs() -> None:
    """They happened."""
    assert 2 == of_patterns({}, rows(runs(2)))["one"].applied


def test_what_recorded_sessions_applied_was_applied() -> None:
    """It counts beside the runs, by the sessions' names; nothing is said of its time or its success."""
    elsewhere = [HistorySession(id=name, minutes=5, outcome="x", applied=("one", "gone")) for name in ("a", "b")]
    found = of_patterns({"one": 30.0, "two": 30.0}, [], recorded=elsewhere)
    assert ("applied", tuple(elsewhere), 0) == (found["one"].standing, found["one"].recorded, found["one"].applied)
    assert ("proposed", ()) == (found["two"].standing, found["two"].recorded)
    assert {"one", "two"} == set(found)
    assert tuple(elsewhere) == of_patterns({}, rows(runs(2)), recorded=elsewhere)["one"].recorded
