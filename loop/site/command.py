"""`loop catalog build`: the catalogue as a folder of pages."""

import datetime
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from loop.profile.model import ResourcesOutput
from loop.profile.resources_section import kernel_rows
from loop.report import format as say
from loop.site import folder
from loop.site.contents import Contents, Known, Looked
from loop.site.pages import pages
from loop.site.plain import stem
from loop.steps.setting import Setting, read_setting
from loop.store import index
from loop.store.sessions import REPORT, SessionFolder

ASKS = "kernel.resources"
"""The action that asks the compiler."""
LOOKED_BACK = 20
"""Sessions whose journals are read for what the compiler said."""


@dataclass(frozen=True)
class Made:
    """A site that was written."""

    place: Path
    files: int
    contents: Contents
    seconds: float


def build_site(out: Path, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Write the catalogue into a folder."""
    made = _build(out, target, screen)
    if as_json:
        screen.data(to_json(BuiltSite(**_facts(made.contents), **_written(made))))
        return ExitCode.OK
    screen.data(str(made.place / "index.html"))
    parts = ", ".join(f"{count} {name}" for name, count in _facts(made.contents).items() if isinstance(count, int))
    screen.say(f"{parts}: {made.files} files in {seconds_text(made.seconds)}")
    screen.say(f"look at it: open {made.place}/index.html")
    return ExitCode.OK


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


def _written(made: Made) -> dict[str, Any]:
    return {
        "out": str(made.place),
        "index": str(made.place / "index.html"),
        "files": made.files,
        "seconds": made.seconds,
    }


def _facts(contents: Contents) -> dict[str, Any]:
    """How much there is of each."""
    return {
        "target": contents.target.name,
        "patterns": len(contents.patterns),
        "sessions": len(contents.rows),
        "variants": len(contents.target.variants),
        "plans": len(contents.plans),
        "damaged": len(contents.damaged),
    }


def _build(out: Path, target: Path | None, screen: Screen) -> Made:
    begun = time.monotonic()
    place = folder.check_place(out)
    contents = gather(read_setting(target), datetime.datetime.now(datetime.UTC))
    screen.status(f"writing {place}")
    with flagged():
        files = folder.write(place, pages(shipped("templates") / "site", contents), _facts(contents))
    return Made(place, files, contents, time.monotonic() - begun)


def gather(setting: Setting, now: datetime.datetime) -> Contents:
    """What the catalogue of a project shows."""
    root = setting.project.sessions
    rows, damaged = index.read(root)
    told = statistics.gather(setting.project, setting.patterns)
    return Contents(
        target=setting.target,
        patterns={name: _known(setting, name, told.get(name)) for name in setting.patterns},
        plans={name: plan.value for name, plan in setting.plans.items()},
        rows=tuple(rows),
        damaged=tuple(damaged),
        resources=_resources(setting, rows),
        reports=dict(_reports(root, rows)),
        version=__version__,
        made=say.day(now),
    )


def _known(setting: Setting, name: str, told: PatternStatistics | None) -> Known:
    pattern = setting.patterns[name].value
    if told is None:
        return Known(pattern, "proposed", (), "-", 0)
    share = f"{100 * told.success.low:.0f}-{100 * told.success.high:.0f} %" if told.success else "-"
    return Known(pattern, told.status, tuple(statistics.lines(told)), share, told.applied)


def _reports(root: Path, rows: Sequence[SessionRow]) -> Iterator[tuple[str, Path]]:
    """The reports that stand in session folders; a link that leads out of its folder is no report."""
    top = Path(os.path.realpath(root))
    for row in rows:
        path = top / row.id / REPORT
        if stem(row.id) == row.id and path.is_file() and Path(os.path.realpath(path)) == path:
            yield row.id, path


def _resources(setting: Setting, rows: Sequence[SessionRow]) -> dict[str, tuple[Looked, ...]]:
    """What the compiler said of each variant for each GPU, the last time it was asked."""
    steps = {
        (name, step.id)
        for name, read in setting.patterns.items()
        for step in read.value.steps
        if step.action == ASKS
    }
    asked = (row for row in reversed(rows) if any((s.pattern, s.step) in steps for s in row.steps))
    latest: dict[tuple[str, str], Looked] = {}
    for row in itertools.islice(asked, LOOKED_BACK):
        for output in _outputs(SessionFolder(setting.project.sessions / row.id)):
            for name, looked in _looked(row.id, output).items():
                latest.setdefault((name, looked.gpu), looked)
    by_variant: dict[str, tuple[Looked, ...]] = {}
    for (name, _), looked in latest.items():
        by_variant[name] = (*by_variant.get(name, ()), looked)
    return by_variant


def _outputs(session: SessionFolder) -> list[ResourcesOutput]:
    try:
        return outputs_of(session.finished(), ResourcesOutput)
    except LoopError:
        return []


def _looked(session: str, output: ResourcesOutput) -> Mapping[str, Looked]:
    """By variant: the kernels of its library alone."""
    gpu = output.device_name or output.device
    named = {name for library in output.libraries for name in library.variants}
    made = {}
    for name in sorted(named):
        own = output.model_copy(
            update={
                "libraries": tuple(one for one in output.libraries if name in one.variants),
                "placements": tuple(one for one in output.placements if one.variant == name),
            }
        )
        made[name] = Looked(session, gpu, kernel_rows(own))
    return made
