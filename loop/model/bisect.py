"""A search for the commit of a regression: candidates, what was observed of them, and the answer."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.output import Output

Outcome = Literal["culprit", "several", "range", "no_regression", "inconclusive", "refused"]
Metric = Literal["latency", "correctness"]
"""What is asked of commits: how long they take, or whether they pass."""
UNCOMMITTED = "uncommitted"
"""Stands for the hash of what is in the checkout and in no commit."""
FEW = 4
"""Workloads that are named; others are counted."""


class Candidate(Model):
    """A commit that may have brought the regression, or the checkout's uncommitted changes."""

    commit: str
    """Its hash, or `uncommitted`."""
    subject: str
    """First line of its message; for uncommitted changes the files."""
    author: str = ""
    when: datetime.datetime | None = None
    merge: bool = False
    parents: tuple[str, ...] = Field(default=(), exclude=True)
    tree: str = ""
    """Hash of all that the repository held: candidates with the same one are the same."""

    @property
    def short(self) -> str:
        """The hash as people are shown it."""
        return self.commit[:12]

    @property
    def origin(self) -> str:
        """As in ` (Ada, 2026-01-02)`; empty where nobody is known."""
        when = f", {self.when:%Y-%m-%d}" if self.when else ""
        return f" ({self.author}{when})" if self.author else ""


class Claim(Model):
    """What a confirmation has to show, as it was fixed before its first observation."""

    number: int
    step: float = 0.0
    """Latency: log ratio of the bad end to the good one; a culprit exceeds a share of it."""
    sd: float = 0.0
    """Latency: how far pairs scatter."""
    rates: tuple[float, float] = (0.0, 0.0)
    """Correctness: failure rates expected of culprit and parent."""


class Probe(Model):
    """What came of trying one candidate once."""

    commit: str
    """Hash of the candidate, or of the good end."""
    against: str
    """Hash of what it was compared with in the same pair."""
    why: str
    status: Literal["measured", "broken", "lost"]
    """It was tried; it cannot be; or something else went wrong, which says nothing of it."""
    values: tuple[float, ...] = ()
    """Latency: log ratios of its time to the other's. Correctness: 1 for right, 0 for wrong."""
    reason: str = ""
    claim: Claim | None = None
    """Set where it was part of a confirmation."""
    seconds: float = 0.0
    workload: str = ""
    """The one that it was timed on, where that was one alone."""


class BisectAnswer(Model):
    """What a search found."""

    outcome: Outcome
    why: str
    swapped: bool = False
    """Whether the good end is the one that is slower, or fails."""
    culprits: tuple[Candidate, ...] = ()
    range: tuple[Candidate, ...] = ()
    """The commits one of which did it, where they cannot be told apart."""
    posterior: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Hash to share of the likelihood, of those above one per mille."""
    ratio: float | None = None
    """Time of the culprit's parent over its own, by the confirming test."""
    probes: tuple[Probe, ...] = ()
    builds: int = 0
    skipped: dict[str, str] = Field(default_factory=dict)
    difference: str = ""
    sets: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """The target's other sets, on which nothing was tried."""
    workloads: tuple[str, ...] = ()
    """Workloads that the answer rests on: where it regressed, or else all of these sets."""
    checks: int = 0
    """Checks of correctness that were made, of all commits together."""

    @property
    def scope(self) -> str:
        """What was tried: `4 workloads of the sets quick, edges, in 80 checks; not tried: set full`."""
        if not self.workloads or not self.probes:
            return ""

        def counted(count: int, word: str) -> str:
            return f"{count:,} {word}{'s' if count != 1 else ''}"

        def sets(names: tuple[str, ...]) -> str:
            return f"set{'s' if len(names) > 1 else ''} {', '.join(names)}"

        text = counted(len(self.workloads), "workload")
        text += f" ({', '.join(self.workloads)})" if len(self.workloads) <= FEW else ""
        text += f" of the {sets(self.sets)}" if self.sets else ""
        text += f", in {counted(self.checks, 'check')}" if self.checks else ""
        return text + (f"; not tried: the {sets(self.left_out)}" if self.left_out else "")


class BisectOutput(Output):
    """Which commit brought a regression."""

    actions = ("bisect.search",)

    variant: str = ""
    metric: Metric | Literal[""] = ""
    answer: BisectAnswer | None = None
