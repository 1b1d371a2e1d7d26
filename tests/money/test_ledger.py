"""The ledger: sums over sessions; unknown is None and never 0, what was spared stands beside what was charged."""

from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.model.index import SessionRow
from loop.money.ledger import Saved, choose, notes, roi, savings, totals

UNKNOWN = {"ai": "nobody told", "energy": "no counter"}


def session(name: str = "a", unknown: dict[str, str] = UNKNOWN, **fields: Any) -> SessionRow:
    """A session of a minute on a processor; its keywords beside fields: dollars by resource, and their basis."""
    usd, basis = fields.pop("usd", {}), fields.pop("basis", "measured")
    base: dict[str, Any] = {
        "started": None,
        "target": "attention",
        "plan": "quick",
        "device": "cpu",
        "status": "passed",
        "seconds": 60.0,
        "environment": {"processor": "x"},
        "charges": [
            {"resource": of, "rate": "r", "seconds": 60, "usd": it, "basis": basis} for of, it in usd.items()
        ],
        "usd": sum(usd.values()),
        "unmeasured": [{"resource": of, "reason": why} for of, why in unknown.items()],
    }
    return SessionRow.model_validate({"id": name, **base, **fields})


THREE = (session("a"), session("b"), session("c"))


def test_totals_are_sums_by_resource() -> None:
    """Two sessions."""
    sums = totals([session("a", usd={"engineer": 1.0}), session("b", usd={"gpu": 0.25})])
    assert (2, 2.0, 1.25) == (sums.sessions, sums.minutes, sums.usd)
    assert (0.25, 1.0) == (sums.of("gpu"), sums.of("engineer"))


def test_what_nobody_measured_is_none_and_what_was_not_used_is_zero() -> None:
    """AI and energy are unknown here; no GPU was held, and that is known."""
    sums = totals(THREE)
    assert (None, None, 0.0) == (sums.of("ai"), sums.of("energy"), sums.of("gpu"))
    assert None is sums.usd
    assert 0.0 == totals([session(unknown={})]).usd


def test_a_known_cost_beside_an_unknown_one_is_the_known_one_and_a_note() -> None:
    """One session of two has a figure: its dollars are shown, and that the other's are missing."""
    two = [session("a", unknown={}, usd={"ai": 0.5}), session("b")]
    assert 0.5 == totals(two).of("ai")
    assert "AI: not measured in 1 of 2 sessions (nobody told)" in notes(two)


def test_what_was_stated_is_said_to_be() -> None:
    """An amount that somebody typed stands in the sums, with a note."""
    stated = session("a", usd={"ai": 0.5}, basis="stated")
    assert "stated by somebody, not measured: charges of 1 of 3 sessions" in notes([stated, *THREE[1:]])


def test_notes_of_bills_and_joules_without_a_price_are_counted() -> None:
    """The same note stands once, with how many sessions have it."""
    noted = [session(name, notes=("an old price",), energy_j=500.0) for name in "ab"]
    told = notes(noted)
    assert "an old price (2 sessions)" in told
    assert "energy: 1,000 J while GPUs were timed, without a price" in told


def test_the_return_is_on_what_sessions_run_here_cost() -> None:
    """A history of 40 dollars that was imported does not make what today's session spared worth less."""
    spared = {"pattern": "p", "source": "s", "minutes": 4.0, "usd": 6.0}
    both = [session("n", recorded=True, usd={"gpu": 40.0}), session("a", usd={"engineer": 2.0}, savings=[spared])]
    assert (42.0, Saved(4.0, 6.0), 2.0) == (totals(both).usd, savings(both), roi(both))
    assert (None, None) == (roi([session(savings=[spared])]), roi([session(usd={"gpu": 1.0})]))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, "abc"), ("a..b", "ab"), ("b..", "bc"), ("..b", "ab"), ("b", "b"), ("last", "c"), ("a..last", "abc"),
        ("last~1", "b"), ("last~1..last", "bc"),
        ("..", "abc"),
    ],
)  # fmt: skip
def test_sessions_are_chosen_by_a_range(words: str | None, expected: str) -> None:
    """From one to another, open at either end, or one alone."""
    assert list(expected) == [one.id for one in choose(THREE, words)]


def test_recorded_sessions_answer_to_the_names_in_their_reports() -> None:
    """`N+4` is `recorded-6c9386-n+4`, and `N` is no other."""
    names = [session(f"recorded-6c9386-{name}", recorded=True) for name in ("n", "n+4", "n+7a")]
    assert names[:2] == choose(names, "N..N+4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("x", "no such session"),
        ("b..a", "a comes before b"),
        ("a..zzz", "zzz: no such session"),
        ("last~3", "no such session"),
    ],
)
def test_a_range_that_is_none_is_refused(words: str, said: str) -> None:
    """With what is wrong with it."""
    with pytest.raises(LoopError, match=said):
        choose(THREE, words)


def test_a_beginning_that_several_have_is_refused() -> None:
    """Nothing is guessed."""
    with pytest.raises(LoopError, match="2 sessions begin so"):
        choose((session("2026-a"), session("2026-b")), "2026")
