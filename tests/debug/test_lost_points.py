"""Points of a search that lost: on the same ground they are not tried again."""

from typing import Any

from loop.debug.turns import lost_points, point
from loop.model.change import PastSearch, TriedPoint


def trial(rows: int, outcome: str = "timed", ratio: float | None = None, **fields: Any) -> TriedPoint:
    """One point of a search over `rows`."""
    base = {"tuning": "tile", "values": {"rows": rows}, "outcome": outcome, "ratio": ratio}
    return TriedPoint.model_validate({**base, **fields})


def search(*trials: TriedPoint, session: str = "s", ground: str = "g", taken_back: str = "") -> PastSearch:
    """A search of an earlier session."""
    return PastSearch(session=session, ground=ground, trials=trials, taken_back=taken_back)


def rows(*searches: PastSearch, ground: str = "g") -> set[object]:
    """The values of the points that lost."""
    return {dict(one)["rows"] for one in lost_points(searches, "tile", ground)}


WHOLE = search(
    trial(16, "incumbent", 1.0),
    trial(32, "best", 1.5),
    trial(48, ratio=1.495),
    trial(64, ratio=1.2),
    trial(80, "refused", reason="too much shared memory"),
    trial(96, "wrong", reason="3 elements wrong"),
    trial(112),
)


def test_points_behind_the_best_and_those_that_failed_have_lost() -> None:
    """The best may be proposed again; one that is as fast within noise, or was never soundly timed, is not out."""
    assert {16, 64, 80, 96} == rows(WHOLE)


def test_each_loser_says_where_and_how() -> None:
    """With its figure, or its own words."""
    found = lost_points([WHOLE], "tile", "g")
    assert "1.200x where the best had 1.500x (session s)" == found[point({"rows": 64})]
    assert "too much shared memory (session s)" == found[point({"rows": 80})]


def test_other_sources_or_another_tuning_say_nothing() -> None:
    """Nor does a search whose ground is not known."""
    assert set() == rows(WHOLE, ground="h")
    assert set() == rows(search(*WHOLE.trials, ground=""), ground="")
    assert {} == lost_points([WHOLE], "other", "g")


def test_a_best_point_that_the_gate_took_back_has_lost_too() -> None:
    """Then the next best leads, and may be proposed."""
    back = search(*WHOLE.trials, taken_back="wrong on B=1")
    assert {16, 32, 64, 80, 96} == rows(back)
    assert "taken back in session s: wrong on B=1" == lost_points([back], "tile", "g")[point({"rows": 32})]


def test_the_last_search_of_a_point_counts_and_a_skipped_one_is_none() -> None:
    """As where it was tried again on request, and won."""
    anew = search(trial(16, "incumbent", 1.0), trial(64, "best", 1.6), session="t")
    assert {16, 80, 96} == rows(WHOLE, anew)
    assert {16, 64, 80, 96} == rows(WHOLE, search(trial(64, "lost", reason="1.2x"), session="t"))
