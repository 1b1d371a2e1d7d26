"""Cells of the tables of `make bench-bisect`, and what is counted of many searches."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loop.bisect.model import Problem
from tests.bisect.simulated import Done, History, done, problem


@dataclass(frozen=True)
class Cell:
    """One length, noise and step, and the counts to reach."""

    last: int
    sd: float
    slowdown: float
    search: int | None = None
    confirm: int | None = None

    @property
    def step(self) -> float:
        """As a log ratio."""
        return math.log1p(self.slowdown)

    @property
    def title(self) -> str:
        """For a row."""
        nominal = self.slowdown / self.sd
        return f"{self.last} | {100 * self.sd:g}% | {self.slowdown:.0%} | {nominal:g}"


@dataclass
class Tally:
    """What came of many searches."""

    found: list[tuple[Done, frozenset[int]]] = field(default_factory=list)

    def share(self, says: Callable[[Done, frozenset[int]], bool]) -> float:
        """Of the searches."""
        return sum(says(one, truth) for one, truth in self.found) / len(self.found)

    def mean(self, number: Callable[[Done], float]) -> float:
        """Over the searches."""
        return sum(number(one) for one, _ in self.found) / len(self.found)


def right(one: Done, truth: frozenset[int]) -> bool:
    """Exactly the culprits, or a run of untestable commits that holds the only one."""
    if one.answer.outcome == "range" and one.answer.range:
        return any(one.answer.range[0] <= culprit <= one.answer.range[1] for culprit in truth)
    return frozenset(one.answer.culprits) == truth


def wrong(one: Done, truth: frozenset[int]) -> bool:
    """Somebody else is blamed, alone or among others."""
    if one.answer.outcome == "range":
        return not right(one, truth)
    return not truth.issuperset(one.answer.culprits)


def left_open(one: Done, truth: frozenset[int]) -> bool:
    """Nobody is blamed."""
    return not one.answer.culprits and one.answer.range is None


def searched(cell: Cell, runs: int, make: Callable[[History], Problem] | None = None, **terms: object) -> Tally:
    """Searches through histories of a cell, each with its own culprit."""
    tally = Tally()
    for number in range(runs):
        history = history_of(cell, number, **terms)
        asked = make(history) if make else problem(cell.last)
        tally.found.append((done(asked, history.observe), frozenset(history.steps)))
    return tally


def history_of(cell: Cell, number: int, places: Sequence[int] = (), alike: int = 1, **terms: object) -> History:
    """The same for every rule. `places`: where the step may be; `alike`: every how many commits."""
    seed = f"{cell.last} {cell.sd} {cell.slowdown} {number}"
    culprit = random.Random(seed).choice([*(places or range(alike, cell.last + 1, alike))])
    steps = {culprit: cell.step} if cell.slowdown else {}
    return History(cell.last, steps, cell.sd, seed, alike=alike, **terms)  # type: ignore[arg-type]


def percent(share: float) -> str:
    """Of the searches."""
    return f"{100 * share:.1f}"


def words(tally: Tally) -> str:
    """Right, wrong and open."""
    return " | ".join(percent(tally.share(says)) for says in (right, wrong, left_open))
