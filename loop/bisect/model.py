"""The input, the questions and the result of a search over commits. Commit 0 is the good end."""

import functools
from dataclasses import dataclass
from typing import Literal

from loop.model.bisect import Claim, Metric

Key = tuple[int, int, int]
"""A confirmation: positions of culprit and parent, and number of the claim."""


@dataclass(frozen=True)
class Problem:
    """The commits to search, oldest first: the first is the good end, the last the bad one.

    Neighbours that build the same program share a *position*.
    """

    commits: tuple[str, ...]
    """Their hashes."""
    programs: tuple[str, ...]
    """For each commit a name of the program it builds: equal names, equal programs."""
    metric: Metric = "latency"

    @functools.cached_property
    def place(self) -> tuple[int, ...]:
        """Position of each commit. Commits between two of the same program share its position."""
        last_of = {program: number for number, program in enumerate(self.programs)}
        place, reach = [0], last_of[self.programs[0]]
        for number, program in enumerate(self.programs[1:], 1):
            place.append(place[-1] + (number > reach))
            reach = max(reach, last_of[program])
        return tuple(place)

    @functools.cached_property
    def first(self) -> tuple[int, ...]:
        """The first commit of each position: a step between two positions is its work."""
        return tuple(self.place.index(position) for position in range(self.last + 1))

    @property
    def last(self) -> int:
        """The position of the bad end."""
        return self.place[-1]

    def shown(self, position: int) -> int:
        """The commit to build for a position: the first one there, or the bad end itself."""
        return len(self.place) - 1 if position == self.last else self.first[position]

    def name(self, position: int) -> str:
        """Short hash of a position's commit, for messages."""
        return self.commits[self.shown(position)][:12]


@dataclass(frozen=True)
class Try:
    """A request: build this commit if needed, and observe it `batch` times."""

    commit: int
    """Index into the commits of the problem."""
    batch: int
    """Requested observations; fewer may result."""
    why: str
    """The reason, shown in the table of probes."""
    against: int = 0
    """The commit it is timed in pairs with: 0, the good end, except in a confirmation."""
    claim: Claim | None = None
    """Set in a confirmation: its observations are fresh, and the search does not use them."""


@dataclass(frozen=True)
class Culprit:
    """A culprit, or a run of commits that contains one."""

    first: int
    """Index of the culprit, or of the first commit of the run."""
    last: int
    """Index of the culprit, or of the last commit of the run."""
    evidence: float
    """e-value of the confirmation."""
    step: float
    """Latency: log(its time / its parent's). Correctness: rise of the failure rate."""


@dataclass(frozen=True)
class SearchEnd:
    """The result of a search."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    why: str
    shares: tuple[float, ...] = ()
    """Share of each position in the likelihood, if computed. With several culprits, the shares of
    each part of the history add up to 1."""
    confirmed: tuple[Culprit, ...] = ()
    swapped: bool = False
    """Whether the regression is at the good end."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the confirmed culprits."""
        return tuple(culprit.first for culprit in self.confirmed if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last index of the first run that cannot be told apart, else None."""
        runs = [(culprit.first, culprit.last) for culprit in self.confirmed if culprit.first != culprit.last]
        return runs[0] if runs else None
