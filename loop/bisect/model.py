"""What a search over commits is given, asks and answers. Commits are numbered from the good end, 0."""

import functools
from dataclasses import dataclass
from typing import Literal

from loop.model.bisect import Claim, Metric

Key = tuple[int, int, int]
"""A confirmation: positions of the culprit and of its parent, and the number of its claim."""


@dataclass(frozen=True)
class Problem:
    """The commits to search, oldest first: the first is the good end, the last the bad one.

    Neighbours that are the same program share a *position*.
    """

    commits: tuple[str, ...]
    """Their hashes."""
    programs: tuple[str, ...]
    """Of each commit a name of what it builds to: commits with the same one are the same program."""
    metric: Metric = "latency"

    @functools.cached_property
    def place(self) -> tuple[int, ...]:
        """Position of each commit. Nothing can have changed between two commits of one program."""
        last_of = {program: number for number, program in enumerate(self.programs)}
        place, reach = [0], last_of[self.programs[0]]
        for number, program in enumerate(self.programs[1:], 1):
            place.append(place[-1] + (number > reach))
            reach = max(reach, last_of[program])
        return tuple(place)

    @functools.cached_property
    def first(self) -> tuple[int, ...]:
        """The commit with which each position begins: a step between two positions is its work."""
        return tuple(self.place.index(position) for position in range(self.last + 1))

    @property
    def last(self) -> int:
        """The position of the bad end."""
        return self.place[-1]

    def shown(self, position: int) -> int:
        """The commit to build for a position: an end is itself, others are the first of their kind."""
        return len(self.place) - 1 if position == self.last else self.first[position]

    def name(self, position: int) -> str:
        """The commit of a position, for people."""
        return self.commits[self.shown(position)][:12]


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
    """Latency: log(its time / its parent's). Correctness: rise of the failure rate."""


@dataclass(frozen=True)
class SearchEnd:
    """What a search came to."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    shares: tuple[float, ...] = ()
    """Share of each position in the likelihood, where that was worked out. Of several culprits, each part of the
    history has its own whole."""
    confirmed: tuple[Culprit, ...] = ()
    swapped: bool = False
    """The good end is the one that regresses."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the commits that are blamed, each confirmed."""
        return tuple(culprit.first for culprit in self.confirmed if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last of commits that cannot be told apart, where there are some."""
        runs = [(culprit.first, culprit.last) for culprit in self.confirmed if culprit.first != culprit.last]
        return runs[0] if runs else None
