"""The nouns of what earlier sessions say: failures with their cures, sessions compared."""

import datetime
from collections import Counter
from typing import Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.change import Kept
from loop.model.money import Charge, Unmeasured
from loop.model.verdict import Interval, is_vague
from loop.repository.between import Revisions

Moved = Literal["higher", "lower", "within"]


class Cure(Model):
    """The first later session in which the same step passed, and what had changed since it failed."""

    failed: str
    """The session in which it failed."""
    session: str
    """The session in which it passed; the same one where that was resumed."""
    environment: tuple[str, ...] = ()
    """Facts that changed: `torch 2.3.0 -> 2.4.1`."""
    commits: tuple[str, str] | None = None
    """Revisions of the target then and at the cure, where both were committed and differ."""
    sources: bool = False
    """Whether the target's files had changed."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of what had changed: `torch`, `sources`."""
        named = tuple(text.split(" ", 1)[0] for text in self.environment)
        return (*named, "sources") if self.sources else named


class Memory(Model):
    """A failure that was seen before."""

    sessions: tuple[str, ...]
    """Where, the last first."""
    cures: tuple[Cure, ...] = ()
    """What cured it, the last first, each session once; of the last meetings alone."""

    @property
    def cure(self) -> Cure | None:
        """What cured it the last time that anything did."""
        return self.cures[0] if self.cures else None

    @property
    def suspects(self) -> tuple[tuple[str, int], ...]:
        """What had changed at its cures, and at how many: most often first, then by the last cure.

        What cures a failure changes at every cure; what merely happened to change at one seldom does at the next.
        """
        counts = Counter(name for cure in self.cures for name in cure.changed)
        return tuple(sorted(counts.items(), key=lambda one: -one[1]))


class Judged(Model):
    """What one session says of one variant on one workload against the baseline."""

    verdict: str
    """faster, slower, same, inconclusive, incorrect or invalid."""
    ratio: float | None = None
    """Baseline time / candidate time; None where it has no speed."""
    interval: Interval | None = None
    """99 % confidence interval of the ratio."""

    @property
    def vague(self) -> bool:
        """Whether its interval is so wide that its ratio says nothing."""
        return self.interval is not None and is_vague(self.interval)


class ComparedSession(Model):
    """One session as a comparison sees it."""

    id: str
    """Name of the session."""
    started: datetime.datetime
    """When it began, UTC."""
    status: str
    """How it ended; `open` while it has not."""
    grade: str = ""
    """Its letter."""
    target: str
    """Name of the target."""
    device: str
    """Where it ran."""
    baseline: str
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
    kept: tuple[Kept, ...] = ()
    """What its kept changes brought: its verdicts are on the target with them."""
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


class Comparison(Model):
    """Sessions beside each other."""

    sessions: tuple[ComparedSession, ...]
    """In the order in which they were named."""
    environment: tuple[Difference, ...]
    """Facts that differ."""
    same: dict[str, str]
    """Facts that are the same in all of them."""
    revisions: tuple[Revisions, ...]
    """Each session's sources against those of the one before it."""
    rows: tuple[Row, ...]
    """Verdicts and ratios."""
    refused: tuple[str, ...]
    """What is not compared, and why."""
