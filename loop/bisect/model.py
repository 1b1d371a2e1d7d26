"""What a search over commits is given, asks, is told and answers. Commits are numbered from the good end, 0."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from loop.model.bisect import Claim, Stop

Metric = Literal["latency", "correctness"]
SearchMetric = Literal["latency", "correctness", "resources"]
"""What is asked of a kernel's commits. Resources are told by runs that pass or fail, as correctness is."""
Key = tuple[int, int, int]
"""A confirmation: position of the culprit and of its parent, and the number of its claim."""


@dataclass(frozen=True)
class Commit:
    """A commit of the first-parent line, as far as a search has to know it."""

    weight: float = 1.0
    """How likely it brought the regression, before anything is measured: relative to the others."""
    group: str = ""
    """Hash of its build inputs. Commits with the same one are the same program; empty: unlike any other."""
    name: str = ""
    """What people call it: the beginning of its hash."""


@dataclass(frozen=True)
class Costs:
    """What things cost, all in units of one single measurement."""

    measure: float = 1.0
    """One observation; a pair is 2."""
    build: float = 20.0
    """A build."""
    relink: float = 3.0
    """The same objects linked in another order."""


@dataclass(frozen=True)
class Noise:
    """How latencies are measured."""

    paired: bool = True
    """Observations are log ratios to the good end's binary in the same pair: the level of the good end is 0."""
    relinks: int = 0
    """So many relinked builds of a commit may be asked for by the search, and as many by a confirmation.

    0: nothing is relinked."""


@dataclass(frozen=True)
class Positions:
    """The history as positions: commits that are the same program share one."""

    place: tuple[int, ...]
    """Position of each commit."""
    first: tuple[int, ...]
    """The commit with which each position begins: a step between positions is its work."""
    prior: tuple[float, ...]
    """Probability that the step is at a position; 0 at the first."""

    @property
    def last(self) -> int:
        """The position of the bad end."""
        return len(self.first) - 1

    def shown(self, position: int) -> int:
        """The commit to build for a position: an end is itself, others are the first of their kind."""
        return len(self.place) - 1 if position == self.last else self.first[position]


@dataclass(frozen=True)
class Problem:
    """What is searched: commits from the good end to the bad end."""

    commits: tuple[Commit, ...]
    """Oldest first; the first is the good end, the last the bad one."""
    metric: Metric = "latency"
    costs: Costs = Costs()
    noise: Noise = Noise()

    @functools.cached_property
    def positions(self) -> Positions:
        """The history as positions. Nothing can have changed between two commits that are alike."""
        opened = [0] * (len(self.commits) + 1)
        for one, other in self._alike():
            opened[one] += 1
            opened[other] -= 1
        inside = [0, *accumulate(opened[:-1])][: len(self.commits)]
        begins = [index == 0 or inside[index] == 0 for index in range(len(self.commits))]
        first = [index for index, new in enumerate(begins) if new]
        place = [number - 1 for number in accumulate(begins)]
        weights = [0.0, *(max(self.commits[index].weight, 0.0) for index in first[1:])]
        weights = weights if any(weights) else [0.0] + [1.0] * (len(first) - 1)
        total = math.fsum(weights) or 1.0
        return Positions(tuple(place), tuple(first), tuple(weight / total for weight in weights))

    def _alike(self) -> Sequence[tuple[int, int]]:
        """The first and the last commit of each group."""
        spans: dict[str, tuple[int, int]] = {}
        for index, commit in enumerate(self.commits):
            if commit.group:
                spans[commit.group] = spans.get(commit.group, (index, index))[0], index
        return list(spans.values())


@dataclass(frozen=True)
class Try:
    """Build this commit unless it is there, and observe it so many times."""

    commit: int
    """Index into the commits of the problem."""
    batch: int
    """Observations that are asked for; fewer may come."""
    why: str
    """For people, in the table of probes."""
    against: int = 0
    """Latency: the commit whose binary is the reference in the same pair; 0 in the search."""
    relink: int = 0
    """0: the build as it is. From 1 on: relinked with this shuffle; in a confirmation the reference with the same,
    while in the search it stays the build as it is."""
    claim: Claim | None = None
    """Set in a confirmation: fresh observations that the search does not use."""
    stop: Stop | None = None
    """When fewer observations than `batch` are enough; None: all are made."""


@dataclass(frozen=True)
class Broken:
    """The commit cannot be tested: it does not build, or its binary does not run."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """The observation did not come about for a reason that says nothing of the commit."""

    reason: str


Values = Sequence[float]
"""Latency: log(time of the commit / time of the reference), above 0 is slower. Correctness: 1 for a run that
passed, else 0."""
Outcome = Values | Broken | Lost


@dataclass(frozen=True)
class Asked:
    """A line of the journal: what was asked, and what came."""

    asked: Try
    outcome: Outcome


@dataclass(frozen=True)
class Culprit:
    """A culprit, or a run of commits of which one is."""

    first: int
    """Index of the culprit; where commits cannot be told apart, of the first of them."""
    last: int
    """The same as `first`, or the last commit of the run."""
    evidence: float
    """e-value of the confirmation."""
    step: float
    """Latency: how much slower than its parent, as a log ratio. Correctness: rise of the failure rate."""


@dataclass(frozen=True)
class Conclusion:
    """What a search came to, of the whole history or between two ends."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    posterior: tuple[float, ...] = ()
    """Probability of each commit; of several culprits, each part of the history has its own whole."""
    found: tuple[Culprit, ...] = ()
    swapped: bool = False
    """The good end is the one that regresses."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the commits that are blamed, each confirmed."""
        return tuple(one.first for one in self.found if one.first == one.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last of commits that cannot be told apart, where there are some."""
        return next(((one.first, one.last) for one in self.found if one.first != one.last), None)
