"""What a search over commits is given, asks and answers. Commits are numbered from the good end, 0."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from loop.model.bisect import Claim, Probe

Metric = Literal["latency", "correctness"]
"""What is asked of commits: how long they take, or whether they pass."""
Key = tuple[int, int, int]
"""A confirmation: positions of the culprit and of its parent, and the number of its claim."""


@dataclass(frozen=True)
class WeighedCommit:
    """A commit of the first-parent line, as far as a search has to know it."""

    name: str
    """Its hash."""
    weight: float = 1.0
    """How likely it brought the regression, before anything is measured: relative to the others."""
    group: str = ""
    """Hash of its build inputs. Commits with the same one are the same program; empty: unlike any other."""


@dataclass(frozen=True)
class Problem:
    """The commits to search. Neighbours that are the same program share a *position*."""

    commits: tuple[WeighedCommit, ...]
    """Oldest first; the first is the good end, the last the bad one."""
    metric: Metric = "latency"

    @functools.cached_property
    def place(self) -> tuple[int, ...]:
        """Position of each commit. Nothing can have changed between two commits of one group."""
        last_of = {commit.group: number for number, commit in enumerate(self.commits) if commit.group}
        ends = accumulate((last_of.get(c.group, number) for number, c in enumerate(self.commits)), max)
        joined = [False, *(end >= number + 1 for number, end in enumerate(ends))]  # To the commit before it.
        return tuple(accumulate(int(number > 0 and not joined[number]) for number in range(len(self.commits))))

    @functools.cached_property
    def first(self) -> tuple[int, ...]:
        """The commit with which each position begins: a step between two positions is its work."""
        return tuple(self.place.index(position) for position in range(self.place[-1] + 1))

    @functools.cached_property
    def prior(self) -> tuple[float, ...]:
        """Probability that the step is at a position; 0 at the first."""
        weights = [max(self.commits[number].weight, 0.0) for number in self.first[1:]]
        weights = weights if any(weights) else [1.0] * len(weights)
        total = math.fsum(weights) or 1.0
        return (0.0, *(weight / total for weight in weights))

    @property
    def last(self) -> int:
        """The position of the bad end."""
        return self.place[-1]

    def shown(self, position: int) -> int:
        """The commit to build for a position: an end is itself, others are the first of their kind."""
        return len(self.place) - 1 if position == self.last else self.first[position]

    def name(self, position: int) -> str:
        """The commit of a position, for people."""
        return self.commits[self.shown(position)].name[:12]


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
    """The commit beside which it is timed, in pairs; 0, the good end, except in a confirmation."""
    claim: Claim | None = None
    """Set in a confirmation: fresh observations that the search does not use."""


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
class SearchEnd:
    """What a search came to."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    shares: tuple[float, ...] = ()
    """Share of each commit in the likelihood; of several culprits, each part of the history has its own whole."""
    found: tuple[Culprit, ...] = ()
    swapped: bool = False
    """The good end is the one that regresses."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the commits that are blamed, each confirmed."""
        return tuple(culprit.first for culprit in self.found if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last of commits that cannot be told apart, where there are some."""
        runs = [(culprit.first, culprit.last) for culprit in self.found if culprit.first != culprit.last]
        return runs[0] if runs else None


@dataclass
class Observations:
    """What the probes so far say, by position."""

    problem: Problem
    values: dict[int, list[float]] = field(default_factory=dict)
    """Latency: log(time of the commit / time of the good end), above 0 is slower. Correctness: 1 for a run that
    passed, else 0."""
    claims: dict[Key, Claim] = field(default_factory=dict)
    """Confirmations, and what each has to show."""
    fresh: dict[tuple[Key, int], list[float]] = field(default_factory=dict)
    """What a confirmation observed of a position."""
    broken: dict[int, str] = field(default_factory=dict)
    """Positions that cannot be tested, and why."""
    built: set[int] = field(default_factory=set)
    """Positions whose build is there."""
    lost: list[str] = field(default_factory=list)
    """Why the last tries in a row said nothing of a commit."""
    observations: int = 0

    def look(self, position: int, batch: int, why: str) -> Try:
        """A try that observes a position."""
        return Try(self.problem.shown(position), batch, why)

    def count(self, position: int) -> int:
        """Observations of the search at a position."""
        return len(self.values.get(position, ()))


def read(problem: Problem, probes: Sequence[Probe]) -> Observations:
    """What these probes say. Ratios to another commit than the good end come from other searches: left out."""
    known = Observations(problem)
    number: Mapping[str, int] = {commit.name: index for index, commit in enumerate(problem.commits)}
    for probe in probes:
        values = [value for value in probe.values if math.isfinite(value)]
        if probe.status == "lost" or (probe.status == "measured" and not values):
            known.lost.append(probe.reason or "no value came")
            continue
        known.lost = []
        position, against = problem.place[number[probe.commit]], problem.place[number[probe.against]]
        if probe.status == "broken":
            known.broken[position] = probe.reason
            continue
        known.built |= {position, against}
        if probe.claim is not None:  # Either side of a confirmation may be the one that was observed.
            key = max(position, against), min(position, against), probe.claim.number
            known.claims.setdefault(key, probe.claim)
            known.fresh.setdefault((key, position), []).extend(values)
        elif problem.metric == "correctness" or against == 0:
            known.values.setdefault(position, []).extend(values)
        else:
            continue
        known.observations += len(values)
    return known
