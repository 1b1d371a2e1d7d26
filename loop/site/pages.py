"""The catalogue as pages of plain HTML: each yielded by its path, so that whoever writes them needs no list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from loop.base.documents import to_json
from loop.base.statuses import css, kind
from loop.model.index import SessionRow
from loop.model.target import CAbiVariant
from loop.report import format as say
from loop.report.templates import jinja
from loop.site.contents import Contents, status_of
from loop.site.plain import clean, page, stem
from loop.site.reports import ratio_figure, report_page

NEWEST = 12
"""Sessions on the first page."""
MOST_USED = 100
"""Sessions that a page of a pattern, plan or kernel lists, the newest."""


@dataclass(frozen=True)
class JudgedSession:
    """What one session said of a variant."""

    session: str
    when: str
    verdict: str
    """`wrong`, `right`, or `not judged`."""
    ratio: float | None
    """Against the baseline; None where it was wrong or not measured."""
    sure: bool
    """False where a workload was inconclusive."""
    place: str
    """Where it was judged."""
    plan: str
    """Says which workloads the ratio is the mean over."""


def points(variant: str, rows: Sequence[SessionRow]) -> tuple[JudgedSession, ...]:
    """The sessions that judged a variant, oldest first; a wrong one has no speed."""
    verdicts = ((row, row.verdict_on(variant)) for row in rows)
    return tuple(
        JudgedSession(
            session=row.id,
            when=say.day(row.started) if row.started else "",
            verdict=verdict,
            ratio=None if verdict == "wrong" else row.ratios.get(variant) or None,
            sure=variant not in row.unsure,
            place=place(row),
            plan=row.plan,
        )
        for row, verdict in verdicts
        if verdict != "not judged" or row.ratios.get(variant)
    )


def place(row: SessionRow) -> str:
    """Where a session ran, in a few words."""
    return row.environment.gpu or row.environment.processor or "an unknown machine"


def pages(templates: Path, contents: Contents) -> Iterator[tuple[str, str]]:
    """Every file of the site: its path from the top, and its text. `templates`: the folder of home.html.j2."""
    env = environment(templates)
    yield "style.css", css() + (templates / "style.css").read_text()
    yield "site.js", (templates / "site.js").read_text()
    for name, report in contents.reports.items():
        status = status_of(contents.by_id[name])
        yield f"sessions/{stem(name)}.report.html", report_page(templates.parent, report, status)
    for path, template, values in _pages(contents):
        folder, _, name = path.rpartition("/")
        where = {"top": "../" if folder else "", "section": folder, "here": name == "index.html"}
        yield path, env.get_template(f"{template}.html.j2").render(site=contents, **where, **values)


def _pages(contents: Contents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, template and values of each page."""
    target, newest = contents.target, tuple(reversed(contents.rows))
    history = {name: points(name, contents.rows) for name in target.variants}
    latest = {name: judged[-1] for name, judged in history.items() if judged}
    yield "index.html", "home", {"newest": newest[:NEWEST]}
    yield "patterns/index.html", "patterns", {}
    yield "sessions/index.html", "sessions", {"newest": newest}
    yield "kernels/index.html", "kernels", {"latest": latest}
    yield "plans/index.html", "plans", {}
    for name in contents.patterns:
        yield page("patterns", name), "pattern", _pattern(name, contents)
    for name, plan in contents.plans.items():
        yield page("plans", name), "plan", {"plan": plan, **_some(contents.of_plan(name))}
    for name, variant in target.variants.items():
        recipe: tuple[str, ...] = ()  # For the first GPU of the manifest, or for this processor.
        if isinstance(variant, CAbiVariant):
            build = target.compiled(name, next(iter(target.devices), "sm_89")).build
            recipe = build.compiler, *build.flags
        tuning = [tuning for tuning in target.tuning.values() if tuning.variant == name]
        judged = _some(tuple(reversed(history[name])))
        values = {"name": name, "variant": variant, "recipe": recipe, "tuning": tuning}
        yield page("kernels", name), "kernel", {**values, "points": judged["rows"], "more": judged["more"]}
    ids = [None, *(row.id for row in contents.rows), None]
    for number, row in enumerate(contents.rows):
        report = contents.reports.get(row.id)
        figure = Markup(ratio_figure(report)) if report else ""
        around = {"older": ids[number], "newer": ids[number + 2]}
        yield page("sessions", row.id), "session", {"row": row, **around, "figure": figure}


def _some(rows: Sequence[Any]) -> dict[str, Any]:
    return {"rows": rows[:MOST_USED], "more": max(0, len(rows) - MOST_USED)}


def _pattern(name: str, contents: Contents) -> dict[str, Any]:
    """A pattern, who it answers, and which plans have it."""
    asked_by = [
        (other, answer.when)
        for other, known in contents.patterns.items()
        for answer in known.pattern.next
        if answer.pattern == name
    ]
    plans = [plan.name for plan in contents.plans.values() if name in plan.patterns]
    rows = [row for row in reversed(contents.rows) if any(run.pattern == name for run in row.runs)]
    return {"known": contents.patterns[name], "asked_by": asked_by, "plans": plans, **_some(rows)}


def environment(templates: Path) -> Environment:
    """Jinja2 for HTML: what a template prints is cleaned and escaped; markup of templates stays as it is."""
    env = jinja(
        templates,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    env.filters |= {
        "usd": say.usd,
        "billed": say.billed,
        "seconds": say.seconds,
        "minutes": say.minutes,
        "times": say.times,
        "day": say.day,
        "stem": stem,
        "status": status_of,
        "kind": kind,
        "yaml": lambda value: to_json(value).strip(),
    }
    env.globals |= {"page": page, "place": place}
    return env
