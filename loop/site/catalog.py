"""`loop catalog build`: makes the pages of the catalogue and writes them into a folder."""

import datetime
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from loop import __version__
from loop.base.documents import content_hash, file_error, to_json
from loop.base.errors import UsageError, remark_once
from loop.base.places import shipped
from loop.base.processes import raise_if_signalled, signals_as_flags
from loop.model.base import Printed
from loop.model.index import SessionRow
from loop.model.plan import Pattern, Plan
from loop.model.target import CAbiVariant, Target
from loop.report import format as say
from loop.report.markdown import plain_text
from loop.report.screen import Screen, colour_class, style_sheet
from loop.report.templates import make_environment
from loop.steps.setting import read_setting
from loop.store import sessions

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
LONGEST = 20_000  # Most characters of one text that a page shows.
NEWEST = 12  # Most sessions on the first page, newest first.
MOST_LISTED = 100  # Most sessions on the page of a pattern, plan or kernel, newest first.


def stem(name: str) -> str:
    """File name of the page of `name`, without suffix; a hash if `name` is unsafe or `index`."""
    is_safe = SAFE_NAME.fullmatch(name) and name.lower() != "index"
    return name if is_safe else f"x-{content_hash(name.encode(errors='surrogatepass'))[:16]}"


def page_path(section: str, name: str) -> str:
    """Path of an item's page, from the top of the site."""
    return f"{section}/{stem(name)}.html"


def clean_text(text: str, longest: int = LONGEST) -> str:
    """`text` without escapes and control characters, cut to `longest`; line ends and tabs stay."""
    text = text[: 2 * longest]  # Escapes are removed below; cleaning all of a huge text takes long.
    if not text.isprintable():
        lines = text.split("\n")
        text = "\n".join(line if line.isprintable() else plain_text(line) for line in lines)
    return text if len(text) <= longest else f"{text[:longest]} ... (cut)"


@dataclass(frozen=True)
class Contents:
    """Everything that the site shows."""

    target: Target
    patterns: Mapping[str, Pattern]
    plans: Mapping[str, Plan]
    rows: tuple[SessionRow, ...]  # All sessions that can be read, oldest first.
    damaged: tuple[sessions.IndexEntry, ...] = ()
    version: str = ""
    date: str = ""

    @cached_property
    def by_id(self) -> dict[str, SessionRow]:
        """Sessions by their id."""
        return {row.id: row for row in self.rows}

    def of_plan(self, name: str) -> list[SessionRow]:
        """Sessions of a plan, newest first."""
        return [row for row in reversed(self.rows) if row.plan == name]


def pages(templates: Path, contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield path from the top and text of every file. `templates`: folder of home.html.j2."""
    env = site_environment(templates)
    target, newest = contents.target, tuple(reversed(contents.rows))

    def page(path: str, template: str, **values: Any) -> tuple[str, str]:
        """A page, rendered from a template with these values."""
        folder, _, file = path.rpartition("/")
        place = {"top": "../" if folder else "", "section": folder, "here": file == "index.html"}
        page_template = env.get_template(f"{template}.html.j2")
        return path, page_template.render(site=contents, **place, **values)

    def listed(rows: Sequence[Any], name: str = "rows") -> dict[str, Any]:
        """`rows` (newest first) that a page lists, under `name`, and `more`: how many it omits."""
        return {name: rows[:MOST_LISTED], "more": max(0, len(rows) - MOST_LISTED)}

    # Variant to (session; `wrong`, `right` or `not judged`; speed ratio, None if it is wrong).
    judged = dict[str, list[tuple[SessionRow, str, float | None]]]()
    for name in target.variants:
        judged[name] = []
        for row in newest:
            verdict, ratio = row.verdict_on(name), row.ratios.get(name) or None
            if verdict != "not judged" or ratio:
                judged[name].append((row, verdict, None if verdict == "wrong" else ratio))
    latest = {name: judgements[0] for name, judgements in judged.items() if judgements}
    yield "style.css", style_sheet() + (templates / "style.css").read_text()
    yield "site.js", (templates / "site.js").read_text()
    yield page("index.html", "home", newest=newest[:NEWEST])
    yield page("patterns/index.html", "patterns")
    yield page("sessions/index.html", "sessions", newest=newest)
    yield page("kernels/index.html", "kernels", latest=latest)
    yield page("plans/index.html", "plans")
    for name, pattern in contents.patterns.items():
        # Patterns that lead to this one, each with the outcome on which they do.
        asked_by: list[tuple[str, str]] = []
        for other, earlier in contents.patterns.items():
            asked_by += [(other, answer.when) for answer in earlier.next if answer.pattern == name]
        plans = [plan.name for plan in contents.plans.values() if name in plan.patterns]
        rows = [row for row in newest if any(run.pattern == name for run in row.runs)]
        values = {"pattern": pattern, "asked_by": asked_by, "plans": plans}
        yield page(page_path("patterns", name), "pattern", **values, **listed(rows))
    for name, plan in contents.plans.items():
        yield page(page_path("plans", name), "plan", plan=plan, **listed(contents.of_plan(name)))
    for name, variant in target.variants.items():
        recipe: tuple[str, ...] = ()  # For the manifest's first GPU, or for this CPU.
        if isinstance(variant, CAbiVariant):
            build = target.compiled_variant(name, next(iter(target.devices), "sm_89")).build
            recipe = build.compiler, *build.flags
        tuning = [tuning for tuning in target.tuning.values() if tuning.variant == name]
        values = {"name": name, "variant": variant, "recipe": recipe, "tuning": tuning}
        yield page(page_path("kernels", name), "kernel", **values, **listed(judged[name], "points"))
    ids = [None, *(row.id for row in contents.rows), None]  # The first and last have one neighbour.
    for number, row in enumerate(contents.rows):
        neighbours = {"older": ids[number], "newer": ids[number + 2]}
        yield page(page_path("sessions", row.id), "session", row=row, **neighbours)


def site_environment(templates: Path) -> Environment:
    """A Jinja2 environment for HTML: cleans and escapes all values except markup of templates."""
    env = make_environment(
        templates,
        finalize=lambda value: (  # A string may be of any origin; markup of templates stays.
            value if isinstance(value, Markup) or not isinstance(value, str) else clean_text(value)
        ),
    )
    env.filters |= {"usd": say.usd, "billed": say.billed_usd, "seconds": say.seconds}
    env.filters |= {"times": say.speedup_text, "day": say.day, "kind": colour_class, "stem": stem}
    env.filters["yaml"] = lambda value: to_json(value).strip()
    env.filters["status"] = lambda row: "recorded" if row.recorded else row.status or "open"
    env.globals["page"] = page_path
    env.globals["place"] = lambda row: (
        row.environment.gpu or row.environment.processor or "an unknown machine"
    )
    return env


def write_site(place: Path, files: Iterable[tuple[str, str]]) -> int:
    """Write a site of `files` (path, text) as the folder `place`. Returns their number. Leaves no
    folder if interrupted. UsageError for one that is not empty, LoopError as `file_error`."""
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise UsageError(f"{place}: is there already", hint="name a new folder, or remove this one")
    scratch = place.parent / f".{place.name}-{secrets.token_hex(6)}.tmp"
    count = 0
    try:
        scratch.mkdir(parents=True)
        for path, text in files:
            raise_if_signalled()
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).write_text(text, encoding="utf-8")
            count += 1
        os.rename(scratch, place)
    except OSError as error:
        raise file_error(place, "written", error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return count


class BuiltSite(Printed):
    """What `loop catalog build --json` prints."""

    target: str
    patterns: int
    sessions: int
    variants: int
    plans: int
    damaged: int
    """Number of damaged session folders, which are left out."""
    out: str
    index: str
    files: int
    seconds: float

    def show(self, screen: Screen) -> None:
        """Print the path of the first page, and counts."""
        screen.data(self.index)
        names = ("patterns", "sessions", "variants", "plans", "damaged")
        counts = ", ".join(f"{getattr(self, name)} {name}" for name in names)
        screen.say(f"{counts}: {self.files} files in {say.seconds(self.seconds)}")
        screen.say(f"look at it: open {self.index}")


def build_site(out: Path, target: Path | None, screen: Screen) -> BuiltSite:
    """Write the catalogue as a new folder. Raises LoopError for one with anything in it."""
    start, place = time.monotonic(), Path(os.path.realpath(out))
    setting = read_setting(target)
    entries = sessions.entries(setting.project.sessions)
    contents = Contents(
        target=setting.target,
        patterns={name: read.value for name, read in setting.patterns.items()},
        plans={name: plan.value for name, plan in setting.plans.items()},
        rows=tuple(entry.row for entry in entries if entry.row is not None),
        damaged=tuple(entry for entry in entries if entry.problem),
        version=__version__,
        date=say.day(datetime.datetime.now(datetime.UTC)),
    )
    for entry in contents.damaged[: sessions.MAX_NAMED]:
        remark_once(f"left out: {entry.problem}")
    screen.status(f"writing {place}")
    with signals_as_flags():
        file_count = write_site(place, pages(shipped("templates") / "site", contents))
    return BuiltSite(
        target=contents.target.name,
        patterns=len(contents.patterns),
        sessions=len(contents.rows),
        variants=len(contents.target.variants),
        plans=len(contents.plans),
        damaged=len(contents.damaged),
        out=str(place),
        index=str(place / "index.html"),
        files=file_count,
        seconds=time.monotonic() - start,
    )
