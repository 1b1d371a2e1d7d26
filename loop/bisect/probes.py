"""Which commit to look at next, and how often: the most information for what it costs. Pure."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol

from loop.bisect.confirming import Word
from loop.bisect.suspects import Claim, Key, Seen, Try

OPEN = 1e-4
"""Where a side is surer than this, another look is not even considered."""
JUMPS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)
"""So far from the middle, either way, commits without a build are considered."""
NEAR_BROKEN = 0.7
"""Probability that the neighbour of a broken commit is broken too."""
BROKEN_REACH = 2
"""So many commits further on it is half of that; of a run of broken ones, as many as the run is long."""


@dataclass(frozen=True)
class Wish:
    """A look at a position."""

    position: int
    batch: int
    why: str
    relink: int = 0


@dataclass(frozen=True)
class Look:
    """What a look would tell, and cost."""

    wish: Wish
    bits: float
    cost: float
    """In single measurements, the build included."""


@dataclass(frozen=True)
class Refuted:
    """There is nothing to search between two ends."""

    outcome: Literal["no_regression", "inconclusive"]
    why: str
    swapped: bool = False


@dataclass(frozen=True)
class Blamed:
    """What a confirmed trial says."""

    step: float
    remains: bool = False
    """So much of the whole step is left that there are other culprits."""
    more: Wish | Try | None = None
    """What would tell whether it does."""


class Metric(Protocol):
    """What a search has to know about what is observed: latencies, or runs that pass or fail."""

    named: float
    """Posterior at which a single commit is named, all that builds may differ by considered."""
    telling: float
    """Bits below which a look tells nothing."""

    def ends(self, low: int, high: int) -> Wish | Refuted | None:
        """What is needed to see that two positions differ; None once that is evident."""

    def mass(self, low: int, high: int) -> Sequence[float]:
        """Probability of a step at each position between two ends, if there is one."""

    def guesses(self, low: int, high: int) -> Sequence[float]:
        """The same, as it decides where to look next."""

    def first(self, low: int, high: int) -> Sequence[float]:
        """The same, as it says whether there is a suspect."""

    def careful(self) -> "Metric":
        """The same observations, where what they may hide counts."""

    def doubt(self, low: int, high: int) -> float:
        """Probability that there is none."""

    def apart(self, low: int, high: int) -> int | None:
        """A position that is on neither end's level: there are steps on both sides of it."""

    def looks(self, low: int, high: int, position: int, probability: float) -> Iterable[Look]:
        """Ways to look at a position that is on the upper side with this probability."""

    def backed(self, low: int, high: int, wish: Wish) -> Wish:
        """The wish, or a look at the end whose group has fewer observations than the commit on trial."""

    def again(self, position: int, batch: int, why: str) -> Wish:
        """A look at a position that has to be known better."""

    def beside(self, low: int, high: int, parent: int, suspect: int, least: int) -> Wish | None:
        """A look at one of the `least` positions from parent down, or from suspect up, that shows how sure a step
        between them is. None: all have shown that."""

    def unsure(self, low: int, high: int, doubt: float) -> Refuted:
        """What is said where there may be no step."""

    def certain(self, low: int, high: int, parent: int, suspect: int, probability: float) -> Wish | bool:
        """Whether this posterior needs no confirmation; or a look that would tell."""

    def claim(self, low: int, high: int, position: int, number: int) -> Claim:
        """What a confirmation of a step at a position has to show."""

    def word(self, key: Key) -> tuple[Word, float]:
        """What a trial says, and its evidence."""

    def ask(self, key: Key, claim: Claim) -> Try:
        """The next observations of a trial."""

    def blamed(self, low: int, high: int, key: Key) -> Blamed:
        """What a confirmed trial explains."""


def choose(
    seen: Seen, metric: Metric, low: int, high: int, mass: Sequence[float], least: float = 0.0
) -> Wish | None:
    """The look that tells most for its cost; None where none tells more bits than the least.

    `mass`: posterior probability of a step at each position.
    """
    upper = list(accumulate(mass))
    positions = [*_measured(seen, low, high), *_fresh(seen, low, high, upper)]
    looks = [
        _with_risk(look, _testable(seen, position))
        for position in dict.fromkeys(positions)
        if OPEN < upper[position] < 1 - OPEN
        for look in metric.looks(low, high, position, upper[position])
    ]
    telling = [look for look in looks if look.bits > max(least, metric.telling)]
    if not telling:
        return None
    return metric.backed(low, high, max(telling, key=lambda look: look.bits / look.cost).wish)


def _measured(seen: Seen, low: int, high: int) -> Iterator[int]:
    """Positions between the ends whose build is there."""
    there = {position for position, relink in seen.built if not relink} | set(seen.values)
    yield from sorted(position for position in there if low < position < high and position not in seen.broken)


def _fresh(seen: Seen, low: int, high: int, upper: Sequence[float]) -> Iterator[int]:
    """Positions around the middle of the posterior, at growing distances where builds are broken."""
    middle = bisect_left(upper, 0.5 - 1e-9, low + 1, high)
    if middle - 1 > low and 0.5 - upper[middle - 1] < upper[middle] - 0.5 - 1e-9:
        middle -= 1
    for jump in JUMPS if seen.broken or middle in seen.values else JUMPS[:1]:
        near = (middle - jump, middle + jump)
        yield from (position for position in near if low < position < high and position not in seen.broken)


def _testable(seen: Seen, position: int) -> float:
    """Probability that a commit can be built: broken ones lie together, and the more, the further they reach."""
    if (position, 0) in seen.built or not seen.broken:
        return 1.0
    there = [built for built, relink in seen.built if not relink]
    low = max((built for built in there if built < position), default=0)
    high = min((built for built in there if built > position), default=seen.line.last)
    run = [broken for broken in seen.broken if low < broken < high]
    if not run:
        return 1.0
    reach = max(max(run) - min(run), BROKEN_REACH)
    before = position - max((broken for broken in run if broken < position), default=-math.inf)
    after = min((broken for broken in run if broken > position), default=math.inf) - position
    return math.prod(1 - NEAR_BROKEN * math.pow(0.5, (away - 1) / reach) for away in (before, after))


def _with_risk(look: Look, testable: float) -> Look:
    return Look(look.wish, look.bits * testable, look.cost)
