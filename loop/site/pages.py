"""The catalogue as pages of plain HTML: each yielded by its path, so that whoever writes them needs no list."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from loop.base.documents import to_json
from loop.base.statuses import css, kind
from loop.model.index import SessionRow
from loop.model.target import CAbiVariant, Target, Variant
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure, logarithmic, plain_number
from loop.report.templates import jinja
from loop.site.contents import Contents, everything, status_of
from loop.site.plain import clean, in_script, page, stem
from loop.site.reports import ratio_figure, report_page

MOST_POINTS = 200
"""Sessions that are drawn, the last ones."""
MOST_PLACES = 3
"""Environments that have a mark of their own; the rest share one."""
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 240.0, 60.0, 12.0, 14.0, 40.0
OTHERS = "other environments"


@dataclass(frozen=True)
class ChartPoint:
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


def points(variant: str, rows: Sequence[SessionRow]) -> tuple[ChartPoint, ...]:
    """The sessions that judged a variant, oldest first; a wrong one has no speed."""
    verdicts = ((row, row.verdict_on(variant)) for row in rows)
    return tuple(
        ChartPoint(
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


def chart(variant: str, points: Sequence[ChartPoint]) -> Figure | None:
    """Ratios on a logarithmic scale, in the order of the sessions; None with fewer than two."""
    shown = [point for point in points if point.ratio is not None][-MOST_POINTS:]
    if len(shown) < 2:
        return None
    ratios, places = [point.ratio for point in shown if point.ratio is not None], _places(shown)
    scale = logarithmic([*ratios, 1.0], HEIGHT - BOTTOM, TOP)
    parts = []
    for value in scale.marks(7):
        parts.append(svg.line(LEFT, scale(value), svg.WIDTH - RIGHT, scale(value)))
        parts.append(svg.text(LEFT - 6, scale(value) + 4, f"{plain_number(value)}x", "soft", anchor="end"))
    parts.append(svg.line(LEFT, scale(1.0), svg.WIDTH - RIGHT, scale(1.0), "ink", dash="5 4"))
    parts.append(svg.text(LEFT, HEIGHT - 8, "sessions, oldest to newest; speed, baseline = 1", "soft"))
    apart = (svg.WIDTH - LEFT - RIGHT - 20) / (len(shown) - 1)
    for number, (point, ratio) in enumerate(zip(shown, ratios, strict=True)):
        kind = places.index(point.place) if point.place in places else len(places) - 1
        parts.append(svg.mark(LEFT + 10 + apart * number, scale(ratio), kind, hollow=not point.sure))
    return svg.drawn("speed", f"Speed of {variant} over its sessions", _words(ratios, places), HEIGHT, parts)


def _places(points: Sequence[ChartPoint]) -> tuple[str, ...]:
    """Environments with most sessions first; all beyond the first few under one name."""
    ranked = [place for place, _ in Counter(point.place for point in points).most_common()]
    return (*ranked[:MOST_PLACES], *([OTHERS] if len(ranked) > MOST_PLACES else []))


def _words(ratios: Sequence[float], places: Sequence[str]) -> str:
    first, last, low, high = (say.times(value) for value in (ratios[0], ratios[-1], min(ratios), max(ratios)))
    marks = "; ".join(f"{shape} is {place}" for shape, place in zip(svg.SHAPES, places, strict=False))
    return (
        f"{len(ratios)} sessions: first {first}, last {last}, between {low} and {high}. "
        f"Above 1 it is faster than the baseline. Marks: {marks}. Hollow marks are inconclusive."
    )


NEWEST = 12
"""Sessions on the first page."""
MOST_USED = 100
"""Sessions that a page of a pattern, plan or kernel lists, the newest."""


def pages(templates: Path, contents: Contents) -> Iterator[tuple[str, str]]:
    """Every file of the site: its path from the top, and its text. `templates`: the folder of home.html.j2."""
    env = environment(templates)
    yield "style.css", css() + (templates / "style.css").read_text()
    yield "site.js", (templates / "site.js").read_text()
    yield "search-index.js", search_index(contents)
    for name, report in contents.reports.items():
        status = status_of(contents.by_id[name])
        yield f"sessions/{stem(name)}.report.html", report_page(templates.parent, report, status)
    for path, template, values in _pages(contents):
        folder, _, name = path.rpartition("/")
        where = {"top": "../" if folder else "", "section": folder, "here": name == "index.html"}
        yield path, env.get_template(f"{template}.html.j2").render(site=contents, **where, **values)


def _pages(contents: Contents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    newest = tuple(reversed(contents.rows))
    yield "index.html", "home", {"newest": newest[:NEWEST]}
    yield "patterns/index.html", "patterns", {}
    yield "sessions/index.html", "sessions", {"newest": newest}
    yield "kernels/index.html", "kernels", {"latest": _latest(contents)}
    yield "plans/index.html", "plans", {}
    for name in contents.patterns:
        yield page("patterns", name), "pattern", _pattern(name, contents)
    for name, plan in contents.plans.items():
        yield page("plans", name), "plan", {"plan": plan, **_some(contents.of_plan(name))}
    for name, variant in contents.target.variants.items():
        yield page("kernels", name), "kernel", _kernel(name, variant, contents)
    yield from _sessions(contents)


def _sessions(contents: Contents) -> Iterator[tuple[str, str, dict[str, Any]]]:
    ids = [row.id for row in contents.rows]
    for number, row in enumerate(contents.rows):
        older = ids[number - 1] if number else None
        newer = ids[number + 1] if number + 1 < len(ids) else None
        report = contents.reports.get(row.id)
        figure = Markup(ratio_figure(report)) if report else ""
        yield page("sessions", row.id), "session", {"row": row, "older": older, "newer": newer, "figure": figure}


def _some(rows: Sequence[SessionRow]) -> dict[str, Any]:
    return {"rows": rows[:MOST_USED], "more": max(0, len(rows) - MOST_USED)}


def _pattern(name: str, contents: Contents) -> dict[str, Any]:
    """A pattern, who it answers, and which plans have it."""
    return {
        "known": contents.patterns[name],
        "asked_by": [
            (other, answer.when)
            for other, known in contents.patterns.items()
            for answer in known.pattern.next
            if answer.pattern == name
        ],
        "plans": [plan.name for plan in contents.plans.values() if name in plan.patterns],
        **_some(contents.of_pattern(name)),
    }


def _kernel(name: str, variant: Variant, contents: Contents) -> dict[str, Any]:
    history = points(name, contents.rows)
    return {
        "name": name,
        "variant": variant,
        "recipe": _recipe(name, contents.target) if isinstance(variant, CAbiVariant) else (),
        "chart": chart(name, history),
        "points": tuple(reversed(history))[:MOST_USED],
        "more": max(0, len(history) - MOST_USED),
        "looked": contents.resources.get(name, ()),
        "tuning": [tuning for tuning in contents.target.tuning.values() if tuning.variant == name],
    }


def _recipe(name: str, target: Target) -> tuple[str, ...]:
    """How it is compiled for the first GPU of the manifest, or for this processor."""
    build = target.compiled(name, next(iter(target.devices), "sm_89")).build
    return build.compiler, *build.flags


def _latest(contents: Contents) -> Mapping[str, ChartPoint]:
    """What the last session that judged each variant said of it."""
    histories = {name: points(name, contents.rows) for name in contents.target.variants}
    return {name: points[-1] for name, points in histories.items() if points}


def search_index(contents: Contents) -> str:
    """What the search reads, as a script: pages from a folder may not read other files."""
    return f"window.LOOP_CATALOGUE={in_script(list(everything(contents)))};\n"


def environment(templates: Path) -> Environment:
    """Jinja2 for HTML: what a template prints is cleaned and escaped."""
    env = jinja(templates, finalize=_finalize)
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


def _finalize(value: Any) -> Any:
    """Text is cleaned before it is escaped; markup of the templates themselves stays as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
