"""What was tried before, and what that says of a build that is to be tried now. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from loop.model.change import PastSearch, TriedPoint
from loop.model.debugging import Try
from loop.model.tuning import Value, Values

Point = tuple[tuple[str, Value], ...]
"""One choice of all values, as what can be looked up."""


def repeated(tries: Sequence[Try], now: Mapping[str, str | None], ground: str) -> tuple[Try, ...]:
    """The last try of each variant whose very build was found wrong; without a build, the target's very files."""
    return tuple({one.variant: one for one in tries if not one.right and _same(one, now, ground)}.values())


def _same(one: Try, now: Mapping[str, str | None], ground: str) -> bool:
    if one.build_id is None:
        return now.get(one.variant) is None and bool(ground) and one.ground == ground
    return one.build_id == now.get(one.variant)


def still_wrong(tries: Sequence[Try]) -> tuple[Try, ...]:
    """The last try of each variant, where it was wrong."""
    return tuple(one for one in {one.variant: one for one in tries}.values() if not one.right)


def sentence(one: Try) -> str:
    """What a try showed, as a lesson."""
    outcome = "that was it" if one.right else f"it did not cure {one.variant}: {one.message}"
    return f"Tried in {one.session}: {one.hypothesis}; {outcome}."


GAIN = 0.01
"""Share by which a point has to be behind the leader of its search to have lost: closer ones may win yet."""


def lost_points(searches: Iterable[PastSearch], tuning: str, ground: str) -> dict[Point, str]:
    """Points that lost on the same ground, each with where and how; the last search that had a point counts."""
    lost: dict[Point, str] = {}
    for search in searches:
        if ground and search.ground == ground:
            mine = [one for one in search.trials if one.tuning == tuning and one.outcome != "lost"]
            leader = max([one.ratio or 0.0 for one in mine if not _taken_back(one, search)], default=0.0)
            for one in mine:
                why = _lost(one, search, leader)
                lost.pop(point(one.values), None)
                lost |= {point(one.values): why} if why else {}
    return lost


def point(values: Values) -> Point:
    """Values as what can be looked up."""
    return tuple(sorted(values.items()))


def _taken_back(one: TriedPoint, search: PastSearch) -> bool:
    return bool(search.taken_back) and one.outcome == "best"


def _lost(one: TriedPoint, search: PastSearch, leader: float) -> str:
    """Why a point lost; empty where it did not, or nobody knows."""
    if one.outcome in ("refused", "wrong"):
        return f"{one.reason or one.outcome} (session {search.session})"
    if _taken_back(one, search):
        return f"taken back in session {search.session}: {search.taken_back}"
    if one.ratio is None or one.ratio * (1 + GAIN) >= leader:
        return ""
    return f"{one.ratio:.3f}x where the best had {leader:.3f}x (session {search.session})"
