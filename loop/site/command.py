"""`loop catalog build`: the catalogue as a folder of pages."""

import datetime
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop import __version__
from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError
from loop.base.interrupts import flagged
from loop.base.places import shipped
from loop.base.screen import Screen, seconds_text
from loop.learning import statistics
from loop.learning.statistics import PatternStatistics
from loop.model.base import Printed
from loop.model.index import SessionRow
from loop.model.output import outputs_of
from loop.model.pattern import Pattern
from loop.profile.model import ResourcesOutput
from loop.profile.resources_section import kernel_rows
from loop.report import format as say
from loop.site import folder
from loop.site.contents import CompilerReport, Contents, Known
from loop.site.pages import pages
from loop.site.plain import stem
from loop.steps.setting import Setting, read_setting
from loop.store import index
from loop.store.sessions import REPORT, SessionFolder

ASKS = "kernel.resources"
"""The action that asks the compiler."""
LOOKED_BACK = 20
"""Sessions whose journals are read for what the compiler said."""


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


def build_site(out: Path, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Write the catalogue into a folder."""
    begun = time.monotonic()
    place = folder.check_place(out)
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
        return ExitCode.OK
    screen.data(first)
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    screen.say(f"{parts}: {files} files in {seconds_text(seconds)}")
    screen.say(f"look at it: open {first}")
    return ExitCode.OK


def gather(setting: Setting, now: datetime.datetime) -> Contents:
    """What the catalogue of a project shows."""
    root = setting.project.sessions
    rows, damaged = index.read(root)
    known = statistics.gather(setting.project, setting.patterns)
    return Contents(
        target=setting.target,
        patterns={name: _known(read.value, known.get(name)) for name, read in setting.patterns.items()},
        plans={name: plan.value for name, plan in setting.plans.items()},
        rows=tuple(rows),
        damaged=tuple(damaged),
        resources=_resources(setting, rows),
        reports=dict(_reports(root, rows)),
        version=__version__,
        date=say.day(now),
    )


def _known(pattern: Pattern, known: PatternStatistics | None) -> Known:
    if known is None:
        return Known(pattern, "proposed", (), "-", 0)
    share = f"{100 * known.success[0]:.0f}-{100 * known.success[2]:.0f} %" if known.success else "-"
    return Known(pattern, known.status, tuple(statistics.lines(known)), share, known.applied)


def _reports(root: Path, rows: Sequence[SessionRow]) -> Iterator[tuple[str, Path]]:
    """The reports that stand in session folders; a link that leads out of its folder is no report."""
    top = Path(os.path.realpath(root))
    for row in rows:
        path = top / row.id / REPORT
        if stem(row.id) == row.id and path.is_file() and Path(os.path.realpath(path)) == path:
            yield row.id, path


def _resources(setting: Setting, rows: Sequence[SessionRow]) -> dict[str, tuple[CompilerReport, ...]]:
    """What the compiler said of each variant for each GPU, the last time it was asked."""
    steps = {
        (name, step.id)
        for name, read in setting.patterns.items()
        for step in read.value.steps
        if step.action == ASKS
    }
    telling = (row for row in reversed(rows) if any((s.pattern, s.step) in steps for s in row.steps))
    latest: dict[str, dict[str, CompilerReport]] = {}
    for row in itertools.islice(telling, LOOKED_BACK):
        try:
            outputs = outputs_of(SessionFolder(setting.project.sessions / row.id).finished(), ResourcesOutput)
        except LoopError:
            continue
        for output in outputs:
            gpu = output.device_name or output.device
            for name in sorted({name for library in output.libraries for name in library.variants}):
                libraries = tuple(library for library in output.libraries if name in library.variants)
                placements = tuple(place for place in output.placements if place.variant == name)
                own = output.model_copy(update={"libraries": libraries, "placements": placements})
                latest.setdefault(name, {}).setdefault(gpu, CompilerReport(row.id, gpu, kernel_rows(own)))
    return {name: tuple(by_gpu.values()) for name, by_gpu in latest.items()}
