"""What a search over commits is given, asks, is told and answers. Commits are numbered from the good end, 0."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from loop.model.bisect import Claim

Metric = Literal["latency", "correctness"]
SearchMetric = Literal["latency", "correctness", "resources"]
"""What is asked of a kernel's commits. Resources are told by runs that pass or fail, as correctness is."""
Word = Literal["confirmed", "failed", "open"]
"""What a confirmation says so far."""
Key = tuple[int, int, int]
"""A confirmation: position of the culprit and of its parent, and the number of its claim."""


@dataclass(frozen=True)
class WeighedCommit:
    """A commit of the first-parent line, as far as a search has to know it."""

    weight: float = 1.0
    """How likely it brought the regression, before anything is measured: relative to the others."""
    group: str = ""
    """Hash of its build inputs. Commits with the same one are the same program; empty: unlike any other."""
    name: str = ""
    """What people call it: the beginning of its hash."""


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

    commits: tuple[WeighedCommit, ...]
    """Oldest first; the first is the good end, the last the bad one."""
    metric: Metric = "latency"
    told: bool = True
    """Whether commits of unlike groups are unlike binaries; else several neighbours may be the same one."""

    @functools.cached_property
    def positions(self) -> Positions:
        """The history as positions. Nothing can have changed between two commits that are alike."""
        opened = [0] * (len(self.commits) + 1)
        for first_alike, other in self._alike():
            opened[first_alike] += 1
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
    claim: Claim | None = None
    """Set in a confirmation: fresh observations that the search does not use."""


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
class SearchTry:
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
class SearchEnd:
    """What a search came to, of the whole history or between two ends."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    shares: tuple[float, ...] = ()
    """Confidence in each commit; of several culprits, each part of the history has its own whole."""
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
        return next(
            ((culprit.first, culprit.last) for culprit in self.found if culprit.first != culprit.last), None
        )


@dataclass
class Confirmation:
    """The observations of one confirmation."""

    claim: Claim
    values: dict[int, list[float]] = field(default_factory=dict)
    """By the position that was observed."""


@dataclass
class Observations:
    """What the journal says, by position."""

    problem: Problem
    values: dict[int, list[float]] = field(default_factory=dict)
    """Observations of the search."""
    confirmations: dict[Key, Confirmation] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    """Positions that cannot be tested, and why."""
    built: set[int] = field(default_factory=set)
    """Positions whose build is there."""
    lost: int = 0
    """Tries in a row that were lost, the last one included."""
    reason: str = ""
    """Why the last one was."""
    observations: int = 0

    @property
    def positions(self) -> Positions:
        """Those of the problem."""
        return self.problem.positions

    def look(self, position: int, batch: int, why: str) -> Try:
        """A try that observes a position."""
        return Try(self.positions.shown(position), batch, why)

    def name(self, position: int) -> str:
        """The commit of a position, for people."""
        return self.problem.commits[self.positions.shown(position)].name

    def count(self, position: int) -> int:
        """Observations of the search at a position."""
        return len(self.values.get(position, ()))

    def fresh(self, key: Key, position: int) -> list[float]:
        """What a confirmation has observed of a position."""
        confirmation = self.confirmations.get(key)
        return confirmation.values.get(position, []) if confirmation else []


def read(problem: Problem, journal: Sequence[SearchTry]) -> Observations:
    """The state of a search that has asked and been told this.

    Ratios to another commit than the good end come from a search with other ends: they say nothing here.
    """
    observations, place = Observations(problem), problem.positions.place
    for line in journal:
        asked, outcome = line.asked, line.outcome
        if not isinstance(outcome, Broken | Lost):
            outcome = [float(value) for value in outcome if math.isfinite(value)] or Lost("no value came")
        if isinstance(outcome, Lost):
            observations.lost, observations.reason = observations.lost + 1, outcome.reason
            continue
        observations.lost, observations.reason = 0, ""
        position, against = place[asked.commit], place[asked.against]
        if isinstance(outcome, Broken):
            observations.broken[position] = outcome.reason
            continue
        observations.built |= {position, against}
        if asked.claim is not None:  # Either side of a confirmation may be the one that was observed.
            key = max(position, against), min(position, against), asked.claim.number
            kept = observations.confirmations.setdefault(key, Confirmation(asked.claim)).values
        elif problem.metric == "correctness" or against == 0:
            kept = observations.values
        else:
            continue
        observations.observations += len(outcome)
        kept.setdefault(position, []).extend(outcome)
    return observations
