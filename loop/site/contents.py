"""What the catalogue shows, as plain values that a command has gathered; and what its search finds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from loop.learning.searching import NAME, PROBLEM, STEP, Field, failures_of, pattern_fields
from loop.model.index import SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Plan
from loop.model.target import Target
from loop.profile.resources_section import KernelRow
from loop.report import format as say
from loop.site.plain import clean, page
from loop.store.index import SessionListing


@dataclass(frozen=True)
class Known:
    """A pattern and what the sessions say of it."""

    pattern: Pattern
    standing: str
    """Proposed, applied, validated, doubtful or retired."""
    statistics: tuple[str, ...]
    """Its statistics in sentences."""
    share: str
    """How often it answers, `80-95 %`; a dash where it was never run."""
    runs: int
    """Runs that say something."""


@dataclass(frozen=True)
class CompilerReport:
    """What the compiler said of a variant's kernels, in the last session that asked."""

    session: str
    gpu: str
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True)
class Contents:
    """Everything that the site shows."""

    target: Target
    patterns: Mapping[str, Known]
    plans: Mapping[str, Plan]
    rows: tuple[SessionRow, ...]
    """Sessions, oldest first."""
    damaged: tuple[SessionListing, ...] = ()
    resources: Mapping[str, tuple[CompilerReport, ...]] = field(default_factory=dict)
    """By variant."""
    reports: Mapping[str, Path] = field(default_factory=dict)
    """By session: its report in Markdown."""
    version: str = ""
    """Of loop."""
    date: str = ""
    """When, in words."""

    @cached_property
    def by_id(self) -> dict[str, SessionRow]:
        """Sessions by their id."""
        return {row.id: row for row in self.rows}

    def of_pattern(self, name: str) -> list[SessionRow]:
        """Sessions in which a pattern ran, newest first."""
        return [row for row in reversed(self.rows) if any(run.pattern == name for run in row.runs)]

    def of_plan(self, name: str) -> list[SessionRow]:
        """Sessions of a plan, newest first."""
        return [row for row in reversed(self.rows) if row.plan == name]


LINE = 160
"""Characters of the line below a hit."""


class Findable(NamedTuple):
    """What a hit shows, and what it is found by."""

    kind: str
    title: str
    line: str
    url: str
    fields: tuple[Field, ...]


def everything(contents: Contents) -> Iterator[Findable]:
    """All that the site's search finds."""
    failures = failures_of(contents.rows)
    for name, known in contents.patterns.items():
        fields = pattern_fields(known.pattern, failures.get(name, ()))
        yield _findable("pattern", known.pattern.title, known.pattern.problem, page("patterns", name), fields)
    for name, variant in contents.target.variants.items():
        facts = f"{variant.kind} {variant.device} {' '.join(getattr(variant, 'sources', ()))}"
        fields = ((NAME, name), (PROBLEM, variant.title), (STEP, facts))
        yield _findable("kernel", name, variant.title, page("kernels", name), fields)
    for name, plan in contents.plans.items():
        fields = ((NAME, plan.name), (PROBLEM, plan.title), (STEP, " ".join(plan.patterns)))
        yield _findable("plan", name, plan.title, page("plans", name), fields)
    for row in reversed(contents.rows):
        facts = " ".join(
            (row.plan, row.target, row.device, row.environment.gpu or "", status_of(row), *row.variants)
        )
        failed = " ".join(failure.text for failure in row.failures)
        fields = ((NAME, row.id), (STEP, facts), (STEP, f"{row.reason} {failed}"))
        yield _findable("session", row.id, outcome(row), page("sessions", row.id), fields)


def _findable(kind: str, title: str, line: str, url: str, fields: Iterable[Field]) -> Findable:
    cut = tuple((weight, clean(text, 2000)) for weight, text in fields if text)
    return Findable(kind, clean(title, LINE), clean(line, LINE), url, cut)


def status_of(row: SessionRow) -> str:
    """How a session ended, in a word."""
    return "recorded" if row.recorded else row.status or "open"


def outcome(row: SessionRow) -> str:
    """A session in a line."""
    fastest = f"; fastest: {row.fastest}" if row.fastest else ""
    reason = f": {row.reason}" if row.reason else ""
    cost = f"; {say.usd(row.usd)}" if row.usd else ""
    return f"{status_of(row)}{reason}{fastest}{cost}"
