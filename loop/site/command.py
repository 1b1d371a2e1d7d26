"""`loop catalog build`: the catalogue as a folder of pages."""

import datetime
import os
import time
from pathlib import Path

from loop import __version__
from loop.base.documents import to_json
from loop.base.interrupts import flagged
from loop.base.places import shipped
from loop.base.screen import Screen, seconds_text
from loop.learning import statistics
from loop.model.base import Printed
from loop.report import format as say
from loop.site import folder
from loop.site.contents import Contents, Known
from loop.site.pages import pages
from loop.site.plain import stem
from loop.steps.setting import Setting, read_setting
from loop.store import index
from loop.store.sessions import REPORT


class BuiltSite(Printed):
    """A catalogue that was written."""

    target: str
    """Name of the target."""
    patterns: int
    """Patterns in it."""
    sessions: int
    """Sessions in it."""
    variants: int
    """Variants in it."""
    plans: int
    """Plans in it."""
    damaged: int
    """Session folders that were left out."""
    out: str
    """Where it is."""
    index: str
    """Its first page."""
    files: int
    """Files written."""
    seconds: float
    """How long that took."""


def build_site(out: Path, target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """Write the catalogue into a folder. Raises LoopError for a folder that is something else."""
    begun, place = time.monotonic(), folder.check_place(out)
    contents = gather(read_setting(target), datetime.datetime.now(datetime.UTC))
    counts = {
        "patterns": len(contents.patterns),
        "sessions": len(contents.rows),
        "variants": len(contents.target.variants),
        "plans": len(contents.plans),
        "damaged": len(contents.damaged),
    }
    facts = {"target": contents.target.name, **counts}
    screen.status(f"writing {place}")
    with flagged():
        files = folder.write(place, pages(shipped("templates") / "site", contents), facts)
    first, seconds = str(place / "index.html"), time.monotonic() - begun
    if as_json:
        built = {**facts, "out": str(place), "index": first, "files": files, "seconds": seconds}
        screen.data(to_json(BuiltSite.model_validate(built)))
        return
    screen.data(first)
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    screen.say(f"{parts}: {files} files in {seconds_text(seconds)}")
    screen.say(f"look at it: open {first}")


def gather(setting: Setting, now: datetime.datetime) -> Contents:
    """What the catalogue of a project shows. A link that leads out of a session's folder is no report of it."""
    root = setting.project.sessions
    rows, damaged = index.read(root)
    known = statistics.gather(setting.project, setting.patterns)
    patterns = {}
    for name, read in setting.patterns.items():
        patterns[name] = Known(read.value)
        if stats := known.get(name):
            share = f"{100 * stats.success[0]:.0f}-{100 * stats.success[2]:.0f} %" if stats.success else "-"
            lines = tuple(statistics.lines(stats))
            patterns[name] = Known(read.value, stats.status, lines, share, stats.applied)
    top = Path(os.path.realpath(root))
    places = {row.id: top / row.id / REPORT for row in rows if stem(row.id) == row.id}
    return Contents(
        target=setting.target,
        patterns=patterns,
        plans={name: plan.value for name, plan in setting.plans.items()},
        rows=tuple(rows),
        damaged=tuple(damaged),
        reports={name: p for name, p in places.items() if p.is_file() and Path(os.path.realpath(p)) == p},
        version=__version__,
        date=say.day(now),
    )
