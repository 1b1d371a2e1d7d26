"""Sessions beside each other: what each states, and what may be said of several of them."""

import datetime
from typing import Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.money import Charge, Unmeasured
from loop.model.verdict import TOO_WIDE, Interval

Moved = Literal["higher", "lower", "within"]


class Judged(Model):
    """What one session says of one variant on one workload against the baseline."""

    verdict: str
    """faster, slower, same, inconclusive, incorrect or invalid."""
    ratio: float | None = None
    """Baseline time / candidate time; None where it has no speed."""
    interval: Interval | None = None
    """99 % confidence interval of the ratio."""
    reference_us: float | None = None
    """Latency of the baseline in microseconds, as it was measured there and then."""
    candidate_us: float | None = None
    """Latency of the candidate in microseconds, likewise."""

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that its ratio says nothing."""
        return self.interval is not None and self.interval[1] > TOO_WIDE * self.interval[0]


class Seen(Model):
    """One session as a comparison sees it."""

    id: str
    """Name of the session."""
    recorded: bool = False
    """Whether it was recorded elsewhere and imported."""
    started: datetime.datetime | None = None
    """When it began, UTC; None where there is no clock."""
    status: str
    """How it ended; `open` while it has not, `recorded` where its report alone speaks."""
    reason: str = ""
    """Why it ended so."""
    grade: str = ""
    """Its letter."""
    target: str | None = None
    """Name of the target; None where the report does not say."""
    device: str | None = None
    """Where it ran."""
    baseline: str | None = None
    """Library function that ratios are against."""
    plan: str = ""
    """Name of the plan."""
    sets: tuple[str, ...] = ()
    """Workload sets of the plan."""
    facts: dict[str, str | None] = Field(default_factory=dict)
    """Environment: facts by name; None: not on record."""
    commit: str | None = None
    """Revision of the target."""
    dirty: bool = False
    """Whether files differed from it."""
    verdicts: dict[str, dict[str, Judged]] = Field(default_factory=dict)
    """Verdicts against the baseline: by variant, then by workload."""
    regressed: tuple[str, ...] = ()
    """Variants that were slower than their known good."""
    incorrect: tuple[str, ...] = ()
    """Variants whose output was wrong."""
    seconds: float | None = None
    """Wall time of all its walks."""
    usd: float | None = None
    """Sum of its charges; None while it is open."""
    charges: tuple[Charge, ...] = ()
    """Priced use."""
    unmeasured: tuple[Unmeasured, ...] = ()
    """Resources without a figure."""
    patterns: dict[str, float] = Field(default_factory=dict)
    """Seconds of its patterns."""
    stated: tuple[str, ...] = ()
    """What only the report of a recorded session says."""


class Difference(Model):
    """A fact of the environment that is not the same in all sessions."""

    fact: str
    """Its name."""
    values: tuple[str | None, ...]
    """One a session, in their order; None: not on record."""


class Row(Model):
    """One variant on one workload, session by session."""

    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    cells: tuple[Judged | None, ...]
    """One a session, in their order; None where it has no verdict, or one that may not stand beside the others."""
    change: float | None = None
    """Ratio of the last session that has one / that of the first."""
    moved: Moved | None = None
    """Whether the last interval lies above the first, below it, or meets it."""
    verdict_changed: bool = False
    """Whether first and last verdict differ."""


class Revisions(Model):
    """What happened to the sources between two sessions."""

    older: str
    """Id of the first session."""
    newer: str
    """Id of the second."""
    relation: Literal["same", "after", "before", "apart", "unknown"]
    """Where the second one's commit stands: the same, after the first, before it, on another line."""
    reason: str = ""
    """Why it is unknown, or what else a reader has to know."""
    commits: tuple[str, ...] = ()
    """Commits that only the second has, newest first, the first so many."""
    count: int = 0
    """How many there are."""
    missing: int = 0
    """Commits that only the first has."""
    files: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Files that differ: lines added and removed."""


class Comparison(Model):
    """Sessions beside each other."""

    sessions: tuple[Seen, ...]
    """In the order in which they were named."""
    environment: tuple[Difference, ...]
    """Facts that differ."""
    same: dict[str, str]
    """Facts that are the same in all of them."""
    revisions: tuple[Revisions, ...]
    """Each session's sources against those of the one before it."""
    rows: tuple[Row, ...]
    """Verdicts and ratios."""
    times_comparable: bool
    """Whether latencies of these sessions may stand beside each other: one machine, one day, one environment."""
    unknown: tuple[str, ...] = ()
    """Facts that latencies hang on and that are not on record for all of the sessions compared."""
    refused: tuple[str, ...]
    """What is not compared, and why."""


class Point(Model):
    """One session in a trend."""

    session: str
    """Its id."""
    started: datetime.datetime
    """When it began, UTC."""
    commit: str | None
    """Revision of the target."""
    dirty: bool = False
    """Whether files differed from it."""
    state: Literal["right", "unsure", "incorrect", "none"]
    """Judged; with an interval too wide to say anything; wrong; or without a speed."""
    ratio: float | None = None
    """Geometric mean of its ratios."""
    workloads: int = 0
    """How many workloads that mean is over."""
    breaks: tuple[str, ...] = ()
    """Why it does not go on from the point before it: `torch 2.4.0 -> 2.5.1`."""


class Series(Model):
    """A variant's ratios over sessions on one device, over the same sets of workloads."""

    variant: str
    """Name of the variant."""
    device: str
    """Where it ran."""
    baseline: str
    """Library function that ratios are against."""
    sets: tuple[str, ...]
    """Workload sets."""
    points: tuple[Point, ...]
    """Oldest first."""
