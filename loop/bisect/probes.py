"""What a search has to know of its observations, and which commit to look at next, by bits for the cost. Pure."""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from loop.bisect.confirming import Word
from loop.bisect.journal import Links, Observations
from loop.bisect.model import Conclusion, Key, Problem, Try
from loop.model.bisect import Claim

OPEN = 1e-4
"""Where a side is surer than this, another look is not even considered."""
JUMPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
"""So far from the middle, either way, commits without a build are considered."""
NEAR_BROKEN = 0.7
"""Probability that the neighbour of a broken commit is broken too."""
BROKEN_REACH = 2
"""So many commits further on it is half of that; of a run of broken ones, as many as the run is long."""


@dataclass(frozen=True)
class Look:
    """What a try would tell, and cost."""

    wanted: Try
    bits: float
    cost: float
    """In single measurements, the build included."""


@dataclass(frozen=True)
class Blamed:
    """What a confirmation says."""

    step: float
    remains: bool = False
    """So much of the whole step is left that there are other culprits."""
    more: Try | None = None
    """What would tell whether it does."""


class Metric(ABC):
    """What a search has to know about what is observed: latencies, or runs that pass or fail.

    `low` and `high` are two positions that differ, between which a step is searched.
    """

    named: float
    """Posterior at which a single commit is named, all that builds may differ by considered."""
    telling: float
    """Bits below which a look tells nothing."""

    def __init__(self, problem: Problem, seen: Observations) -> None:
        self.problem, self.seen = problem, seen

    def look(self, position: int, batch: int, why: str, relink: int = 0) -> Try:
        """Observe a position."""
        return Try(self.seen.positions.shown(position), batch, why, relink=relink)

    def again(self, position: int, batch: int, why: str) -> Try:
        """Observe a position that has to be known better, in the build that tells most."""
        return self.look(position, batch, why)

    def name(self, position: int) -> str:
        """The commit of a position, for people."""
        return self.problem.commits[self.seen.positions.shown(position)].name

    @abstractmethod
    def said(self, step: float) -> str:
        """A step of what is observed, for people."""

    def fresh(self, key: Key, position: int) -> Links:
        """What a confirmation has observed of a position."""
        made = self.seen.confirmations.get(key)
        return made.values.get(position, {}) if made else {}

    @abstractmethod
    def ends(self, low: int, high: int) -> Try | Conclusion | None:
        """What is needed to see that two positions differ; None once that is evident."""

    @abstractmethod
    def mass(self, low: int, high: int) -> Sequence[float]:
        """Probability of a step at each position, if there is one."""

    def first(self, low: int, high: int) -> Sequence[float]:
        """The same, as it says whether there is a suspect."""
        return self.mass(low, high)

    def guesses(self, low: int, high: int) -> Sequence[float]:
        """The same, as it decides where to look next."""
        return self.first(low, high)

    def careful(self) -> "Metric":
        """The same observations, where what they may hide counts."""
        return self

    def doubt(self, low: int, high: int) -> float:
        """Probability that there is no step."""
        return 0.0

    def apart(self, low: int, high: int) -> int | None:
        """A position that is on neither end's level: there are steps on both sides of it."""
        return None

    @abstractmethod
    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """Ways to look at a position that is on the upper side with this probability."""

    def backed(self, low: int, high: int, wanted: Try) -> Try:
        """The try, or one of the end whose group has fewer observations than the commit on trial."""
        position = self.seen.positions.place[wanted.commit]
        below, above = self.sides(low, high, position)
        if min(below, above) >= self.weight(position, low, high) + 1 or position in (low, high):
            return wanted
        return self.instead(low, high, low if below < above else high, wanted)

    @abstractmethod
    def sides(self, low: int, high: int, position: int) -> tuple[float, float]:
        """Observations on either side of the likeliest step, without those of a position."""

    @abstractmethod
    def weight(self, position: int, low: int, high: int) -> float:
        """Observations of a position."""

    @abstractmethod
    def instead(self, low: int, high: int, end: int, wanted: Try) -> Try:
        """A try of an end in the place of another, or that one where it tells nothing."""

    @abstractmethod
    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Try | None:
        """A look at one of the `least` positions from parent down, or from suspect up, that shows how sure a step
        between them is. None: all have shown that."""

    @abstractmethod
    def unsure(self, low: int, high: int, doubt: float) -> Conclusion:
        """What is said where there may be no step."""

    def certain(self, low: int, high: int, parent: int, suspect: int, probability: float) -> Try | bool:
        """Whether this posterior needs no confirmation; or a look that would tell."""
        return False

    @abstractmethod
    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """What a confirmation of a step at a position has to show."""

    @abstractmethod
    def word(self, key: Key) -> tuple[Word, float]:
        """What a confirmation says, and its evidence."""

    @abstractmethod
    def ask(self, key: Key, claim: Claim) -> Try:
        """The next observations of a confirmation."""

    @abstractmethod
    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """What a confirmation explains."""


def choose(metric: Metric, low: int, high: int, mass: Sequence[float], least: float = 0.0) -> Try | None:
    """The look that tells most for its cost; None where none tells more bits than the least.

    `mass`: posterior probability of a step at each position.
    """
    upper, seen = list(accumulate(mass)), metric.seen
    best, most = None, 0.0
    for position in dict.fromkeys([*_measured(seen, low, high), *_fresh(seen, low, high, upper)]):
        if OPEN < upper[position] < 1 - OPEN:
            testable = _testable(seen, position)
            for look in metric.looks(low, high, position, upper[position]):
                bits = look.bits * testable
                if bits > max(least, metric.telling) and bits / look.cost > most:
                    best, most = look.wanted, bits / look.cost
    return metric.backed(low, high, best) if best else None


def _measured(seen: Observations, low: int, high: int) -> Iterator[int]:
    """Positions between the ends whose build is there."""
    there = {position for position, relink in seen.built if not relink} | set(seen.values)
    yield from sorted(position for position in there if low < position < high and position not in seen.broken)


def _fresh(seen: Observations, low: int, high: int, upper: Sequence[float]) -> Iterator[int]:
    """Positions around the middle of the posterior, at growing distances where builds are broken."""
    middle = bisect_left(upper, 0.5 - 1e-9, low + 1, high)
    if middle - 1 > low and 0.5 - upper[middle - 1] < upper[middle] - 0.5 - 1e-9:
        middle -= 1
    for jump in JUMPS if seen.broken or middle in seen.values else JUMPS[:1]:
        near = (middle - jump, middle + jump)
        yield from (position for position in near if low < position < high and position not in seen.broken)


def _testable(seen: Observations, position: int) -> float:
    """Probability that a commit can be built: broken ones lie together, and the more, the further they reach."""
    if (position, 0) in seen.built or not seen.broken:
        return 1.0
    there = [built for built, relink in seen.built if not relink]
    low = max((built for built in there if built < position), default=0)
    high = min((built for built in there if built > position), default=seen.positions.last)
    run = [broken for broken in seen.broken if low < broken < high]
    if not run:
        return 1.0
    reach = max(max(run) - min(run), BROKEN_REACH)
    nearest = [
        min((abs(broken - position) for broken in side), default=math.inf) for side in _sides(run, position)
    ]
    return math.prod(1 - NEAR_BROKEN * math.pow(0.5, (away - 1) / reach) for away in nearest)


def _sides(run: Sequence[int], position: int) -> tuple[list[int], list[int]]:
    """Those before a position, and those after it."""
    return [one for one in run if one < position], [one for one in run if one > position]
