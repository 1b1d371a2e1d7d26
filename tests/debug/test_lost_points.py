"""Points of a search that lost: on the same ground they are not tried again."""

from typing import Any

from loop.model.change import PastSearch, TriedPoint
from loop.optimize.tuning import rejected_points


def trial(rows: int, outcome: str = "timed", ratio: float | None = None, **fields: Any) -> TriedPoint:
    """One point of a search over `rows`."""
    base = {"tuning": "tile", "values": {"rows": rows}, "outcome": outcome, "ratio": ratio}
    return TriedPoint.model_validate({**base, **fields})


def search(*trials: TriedPoint, session: str = "s", ground: str = "g", taken_back: str = "") -> PastSearch:
    """A search of an earlier session."""
    return PastSearch(session=session, ground=ground, trials=trials, taken_back=taken_back)


def rows(*searches: PastSearch, ground: str = "g") -> set[object]:
    """The values of the points that lost."""
    return {dict(one)["rows"] for one in rejected_points(searches, "tile", ground)}


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
