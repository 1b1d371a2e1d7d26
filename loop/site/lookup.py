"""What the search reads of each thing: its texts, each with a weight."""

from collections.abc import Iterator
from typing import NamedTuple

from loop.learning.searching import NAME, PROBLEM, STEP, Field, failures_of, pattern_fields
from loop.model.index import SessionRow
from loop.model.plan import Plan
from loop.model.target import Variant
from loop.report import format as say
from loop.site.contents import Contents
from loop.site.names import page
from loop.site.plain import clean

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
        yield _findable("kernel", name, variant.title, page("kernels", name), _variant(name, variant))
    for name, plan in contents.plans.items():
        yield _findable("plan", name, plan.title, page("plans", name), _plan(plan))
    for row in reversed(contents.rows):
        yield _findable("session", row.id, outcome(row), page("sessions", row.id), _session(row))


def _findable(kind: str, title: str, line: str, url: str, fields: tuple[Field, ...]) -> Findable:
    cut = tuple((weight, clean(text, 2000)) for weight, text in fields if text)
    return Findable(kind, clean(title, LINE), clean(line, LINE), url, cut)


def _variant(name: str, variant: Variant) -> tuple[Field, ...]:
    sources = " ".join(getattr(variant, "sources", ()))
    return (NAME, name), (PROBLEM, variant.title), (STEP, f"{variant.kind} {variant.device} {sources}")


def _plan(plan: Plan) -> tuple[Field, ...]:
    return (NAME, plan.name), (PROBLEM, plan.title), (STEP, " ".join(plan.patterns))


def _session(row: SessionRow) -> tuple[Field, ...]:
    failed = " ".join(one.signature for one in row.failures)
    facts = (
        f"{row.plan} {row.target} {row.device} {row.environment.gpu or ''} {status(row)} {' '.join(row.variants)}"
    )
    return (NAME, row.id), (STEP, facts), (STEP, f"{row.reason} {failed}")


def status(row: SessionRow) -> str:
    """How a session ended, in a word."""
    return "recorded" if row.recorded else row.status or "open"


def outcome(row: SessionRow) -> str:
    """A session in a line."""
    fastest = f"; fastest: {row.fastest}" if row.fastest else ""
    reason = f": {row.reason}" if row.reason else ""
    cost = f"; {say.usd(row.usd)}" if row.usd else ""
    return f"{status(row)}{reason}{fastest}{cost}"
