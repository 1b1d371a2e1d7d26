"""Bisection: the search for the commit that caused a regression. Candidates, probes and answer."""

import datetime
import math
from typing import Literal

from pydantic import Field

from loop.base.stats import winsorise
from loop.model.base import Model
from loop.model.output import Output

Outcome = Literal["culprit", "several", "range", "no_regression", "inconclusive", "refused"]
Metric = Literal["latency", "correctness"]  # What is compared: time, or right checks.
UNCOMMITTED = "uncommitted"  # Used instead of a hash for the checkout's uncommitted changes.


class Candidate(Model):
    """A commit that may have caused the regression, or the checkout's uncommitted changes."""

    commit: str  # The hash, or `uncommitted`.
    subject: str
    """First line of the commit message; for uncommitted changes the file names."""
    author: str = ""
    when: datetime.datetime | None = None
    merge: bool = False
    parents: tuple[str, ...] = Field(default=(), exclude=True)
    tree: str = ""
    """Hash of all files of the commit. Candidates with equal trees are the same."""

    @property
    def short_commit(self) -> str:
        """First 12 characters of the hash."""
        return self.commit[:12]

    @property
    def name(self) -> str:
        """`0123456789ab (subject)`; for uncommitted changes the subject, which names the files."""
        is_commit = self.commit != UNCOMMITTED
        return f"{self.short_commit} ({self.subject})" if is_commit else self.subject


class Claim(Model):
    """What a confirmation test must show. It is fixed before the first observation."""

    number: int
    step: float = 0.0
    """Latency: log ratio of the bad level to the good one, so not the suspect's own slow-down."""
    sd: float = 0.0
    """Latency: standard deviation of one pair's log ratio, not of the step."""
    rates: tuple[float, float] = (0.0, 0.0)
    """Correctness: expected failure rates of culprit and parent."""


class Probe(Model):
    """One try of one candidate."""

    commit: str
    """Hash of the candidate, or of the good end."""
    against: str
    """Hash of the commit that it was compared with in the same pair."""
    why: str
    status: Literal["measured", "broken", "lost"]
    """`measured`; `broken`: the commit cannot be tried; `lost`: another error, no evidence."""
    values: tuple[float, ...] = ()
    """Latency: log ratios of this commit's time to the other's. Correctness: 1 right, 0 wrong."""
    reason: str = ""
    claim: Claim | None = None
    """Set if the probe was part of a confirmation test."""
    seconds: float = 0.0
    workload: str = ""
    """The workload that was timed, if it was only one."""

    def describe(self, metric: Metric) -> str:
        """What came of it: `right in 2 of 2 runs`, `2.2 % slower than 3be0e6249b77`, or why not."""
        if not self.values:
            return f"{'no result' if self.status == 'lost' else 'cannot be tried'}: {self.reason}"
        mean, count = winsorise(self.values).mean, len(self.values)
        if metric == "correctness":
            return f"right in {round(mean * count)} of {count} {'run' if count == 1 else 'runs'}"
        change, pairs = 100 * math.expm1(mean), "" if count == 1 else f", mean of {count} pairs"
        word = "slower" if change > 0 else "faster"
        return f"{abs(change):.1f} % {word} than {self.against[:12]}{pairs}"


class BisectAnswer(Model):
    """The answer of a bisection."""

    outcome: Outcome
    why: str
    swapped: bool = False
    """Whether the good end is slower or fails, so good and bad seem to be swapped."""
    culprits: tuple[Candidate, ...] = ()
    range: tuple[Candidate, ...] = ()
    """Commits that contain the culprit, if they cannot be distinguished."""
    ratio: float | None = None
    """Time of the culprit's parent / time of the culprit, from the confirmation test."""
    probes: tuple[Probe, ...] = ()
    builds: int = 0
    skipped: dict[str, str] = Field(default_factory=dict)
    difference: str = ""
    sets: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """The target's other workload sets, which were not tried."""
    workloads: tuple[str, ...] = ()
    """Workloads behind the answer: those that regressed, or else all of `sets`."""
    checks: int = 0
    """Number of correctness checks that this run made, over all commits."""


class BisectOutput(Output):
    """Result of `bisect.search`: the commit that caused a regression."""

    actions = ("bisect.search",)

    variant: str = ""
    metric: Metric | Literal[""] = ""
    answer: BisectAnswer | None = None
