"""The input, the questions and the result of a search over commits. Commit 0 is the good end."""

import functools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from loop.model.bisect import Claim, Metric


@dataclass
class Confirmation:
    """Fresh observations of a suspect and its parent, which have to show a claim."""

    suspect: int
    """Position of the suspect, after `parent`."""
    parent: int
    claim: Claim
    values_at: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Observed position to its values, as in `Observations.values_at`."""


@dataclass(frozen=True)
class SearchProblem:
    """The commits to search, oldest first: the first is the good end, the last the bad one.
    Neighbours that build the same program share a *position*."""

    commits: tuple[str, ...]
    """Their hashes."""
    programs: tuple[str, ...]
    """For each commit a name of the program it builds: equal names, equal programs."""
    metric: Metric = "latency"

    @functools.cached_property
    def positions(self) -> tuple[int, ...]:
        """Position of each commit: 0 for the good end, one more at each commit with a new program.
        Commits between two of the same program share its position."""
        last_index_of = {program: index for index, program in enumerate(self.programs)}
        positions, position, shared_until = list[int](), 0, last_index_of[self.programs[0]]
        for index, program in enumerate(self.programs):
            if index > shared_until:
                position += 1
            positions.append(position)
            shared_until = max(shared_until, last_index_of[program])
        return tuple(positions)

    @functools.cached_property
    def first_commits(self) -> tuple[int, ...]:
        """Index of the first commit of each position: it makes the step to this position."""
        return tuple(self.positions.index(position) for position in range(self.last_position + 1))

    @property
    def last_position(self) -> int:
        """The position of the bad end."""
        return self.positions[-1]

    def commit_at(self, position: int) -> int:
        """Index of the commit to build for a position: its first, or the bad end itself."""
        return len(self.positions) - 1 if position == self.last_position else self.first_commits[position]

    def short_hash(self, position: int) -> str:
        """Short hash of a position's commit, for messages."""
        return self.commits[self.commit_at(position)][:12]


@dataclass(frozen=True)
class ProbeRequest:
    """A request: build this commit if needed, and observe it `count` times."""

    commit: int
    """Index into the commits of the problem."""
    count: int
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
    probabilities: tuple[float, ...] = ()
    """Probability of each position that the step is there, if computed. With several culprits, it
    adds up to 1 in each part of the history."""
    confirmed: tuple[Culprit, ...] = ()
    swapped: bool = False
    """Whether the regression is at the good end."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """Indices of the confirmed culprits that are a single commit."""
        return tuple(culprit.first for culprit in self.confirmed if culprit.first == culprit.last)

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last index of the first run that contains a culprit; None without such a run."""
        runs = [(culprit.first, culprit.last) for culprit in self.confirmed if culprit.first != culprit.last]
        return runs[0] if runs else None
