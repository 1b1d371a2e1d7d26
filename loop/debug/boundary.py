"""From which size on does it fail? Which sizes to try, and what may be said of them. Pure: others try."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import pairwise

from loop.debug.shrinking import doublings
from loop.model.debugging import Outcome

Tried = Mapping[int, Outcome]
Search = Generator[int, Outcome, None]
"""Yields sizes, and is sent what came of each."""
TURNS = 2
"""So many changes between failing and passing are looked at closely."""
FAR = 64
"""A short dimension is tried up to this, or to eight times its size."""
GUESSES = 5
"""So many steps are tried in which a rule on multiples might go."""
LISTED = 6
"""Sizes named one by one."""
ENOUGH = 2
"""So many sizes of either kind make a rule on multiples."""


def search(size: int) -> Search:
    """Sizes to try around one that fails: doublings to twice of it, then halves where it turns, then neighbours.

    Neighbours show whether it is a boundary at all: a kernel may fail on odd sizes, or on all but whole tiles.
    """
    tried: dict[int, Outcome] = {size: "fails"}
    yield from _ask(tried, [*doublings(size), *doublings(min(8 * size, FAR) + 1), 2 * size])
    for low, high in _nearest(_turns(tried), size):
        yield from _halve(tried, low, high)
    yield from _ask(tried, [n for low, high in _turns(tried) for n in (high + 1, high + 2, low - 1)])
    yield from _ask(tried, [size + 1, size - 1])
    for _ in range(GUESSES):
        step = _period(tried, 1)
        if step and len(_turns(tried)) > 1:
            yield from _ask(tried, [2 * step, 2 * step + 1, 3 * step, 3 * step - 1])


def _ask(tried: dict[int, Outcome], sizes: Iterable[int]) -> Search:
    for size in sizes:
        if size > 0 and size not in tried:
            tried[size] = yield size


def _turns(tried: Tried) -> list[tuple[int, int]]:
    """Neighbouring sizes of which one fails and the other passes."""
    judged = sorted(size for size, outcome in tried.items() if outcome != "other")
    return [(low, high) for low, high in pairwise(judged) if tried[low] != tried[high]]


def _nearest(turns: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    return sorted(turns, key=lambda turn: min(abs(turn[0] - size), abs(turn[1] - size)))[:TURNS]


def _halve(tried: dict[int, Outcome], low: int, high: int) -> Search:
    """Close in on a turn; what cannot be judged counts as passing."""
    below = tried[low]
    while high - low > 1:
        middle = (low + high) // 2
        yield from _ask(tried, [middle])
        outcome = "fails" if tried[middle] == "fails" else "passes"
        low, high = (middle, high) if outcome == below else (low, middle)


def _period(tried: Tried, enough: int = ENOUGH) -> int:
    """The smallest step whose multiples all pass while every other size fails, or the other way round; else 0."""
    judged = {size: outcome for size, outcome in tried.items() if outcome != "other"}
    for step in range(2, max(judged, default=0) + 1):
        inside = [outcome for size, outcome in judged.items() if size % step == 0]
        outside = [outcome for size, outcome in judged.items() if size % step]
        alike = len(set(inside)) == len(set(outside)) == 1 and inside[0] != outside[0]
        if alike and len(inside) >= enough and len(outside) >= ENOUGH:
            return step
    return 0


def describe(name: str, tried: Tried) -> str:
    """What follows from the sizes that were tried, and no more."""
    fails, passes, others = (sizes_of(tried, outcome) for outcome in ("fails", "passes", "other"))
    turns = _turns(tried)
    apart = f" (at {_list(name, others)} it cannot be told)" if others else ""
    if not passes:
        return f"fails at every {name} tried, {_list('', fails)}{apart}"
    if len(turns) == 1:
        return _one_turn(name, turns[0], tried)
    step = _period(tried)
    if step:
        word = "no" if fails[0] % step else "a"
        tries = f"fails at {_list('', fails)}, passes at {_list('', passes)}"
        return f"fails where {name} is {word} multiple of {step}: {tries}{apart}"
    if len(turns) == 2 and _exact(turns) and tried[turns[0][0]] == "passes":
        (good, first), (last, after) = turns
        which = f"{name}={first} alone" if first == last else f"{name}={first} to {last}"
        span = f"(tried from {min(tried)} to {max(tried)})"
        return f"fails at {which}, passes at {good} and {after} {span}{apart}"
    return f"no single boundary: fails at {_list(name, fails)}, passes at {_list('', passes)}{apart}"


def _one_turn(name: str, turn: tuple[int, int], tried: Tried) -> str:
    (low, high), (least, most) = turn, (min(tried), max(tried))
    first, second = ("passes", "fails") if tried[low] == "passes" else ("fails", "passes")
    if _exact([turn]):
        return f"{first} up to {name}={low}, {second} from {name}={high} on (tried from {least} to {most})"
    between = [size for size in tried if low < size < high]
    why = "of sizes between them it cannot be told" if between else "nothing between them was tried"
    return f"{first} at {name}={low}, {second} at {name}={high}; {why}"


def _exact(turns: Iterable[tuple[int, int]]) -> bool:
    return all(high - low == 1 for low, high in turns)


def edges(tried: Tried) -> list[int]:
    """Sizes on either side of a change between failing and passing."""
    return sorted({size for turn in _turns(tried)[:TURNS] for size in turn})


def sizes_of(tried: Tried, outcome: Outcome) -> tuple[int, ...]:
    """Sizes of one outcome, in order."""
    return tuple(sorted(size for size, found in tried.items() if found == outcome))


def _list(name: str, sizes: Iterable[int]) -> str:
    shown = list(_shown(sorted(sizes)))
    return f"{name}={', '.join(shown)}" if name else ", ".join(shown)


def _shown(sizes: list[int]) -> Iterator[str]:
    """All of a few; of many the first, and the last."""
    if len(sizes) <= LISTED:
        yield from map(str, sizes)
    else:
        yield from map(str, sizes[: LISTED - 1])
        yield f"... {sizes[-1]}"
