"""`loop catalog build`: writes the catalogue into a folder."""

import datetime
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from loop import __version__
from loop.base.documents.files import file_error
from loop.base.errors import UsageError, remark_once
from loop.base.interrupts import raise_if_signalled, signals_as_flags
from loop.base.places import shipped
from loop.learning import prediction
from loop.model.base import Printed
from loop.report import format as say
from loop.report.screen import Screen, seconds_text
from loop.site.pages import Contents, pages, stem
from loop.steps.setting import Setting, read_setting
from loop.store import index
from loop.store.sessions import REPORT

MARKER = "catalogue.json"
"""File that marks a folder as loop's catalogue and lists the top-level names that belong to it."""
KIND = "loop catalogue"


def check_out_folder(out: Path) -> Path:
    """The absolute path of `out`. Raises UsageError for a folder with anything but a catalogue in it."""
    place, here = Path(os.path.realpath(out)), Path(os.path.realpath(os.curdir))
    hint = "choose another folder with --out; a new one is made"
    if place in (here, *here.parents):
        raise UsageError(f"{out}: this is where you are, or above it: it would be replaced", "--out catalogue")
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place}: there is a file of this name", hint=hint)
    if not place.is_dir() or not any(place.iterdir()):
        return place
    try:
        marker = json.loads((place / MARKER).read_bytes())
    except (OSError, ValueError, RecursionError):
        marker = None
    if not isinstance(marker, dict) or marker.get("kind") != KIND or not isinstance(marker.get("top"), list):
        raise UsageError(f"{place}: there are files, and it is not a catalogue made by loop", hint=hint)
    own_names = {MARKER, *map(str, marker["top"])}
    others = sorted(path.name for path in place.iterdir() if path.name not in own_names)
    if others:
        names = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        message = f"{place}: {names} is not of the catalogue, and would be lost"
        raise UsageError(message, hint=f"move it away, or {hint}")
    return place


def write_site(place: Path, pages: Iterable[tuple[str, str]]) -> int:
    """Write a site into `place`, replacing an older one. Returns the number of files.
    `pages`: (path, text) pairs. An interruption leaves the old site unchanged and no temporary files.
    Raises LoopError if the disk cannot be written."""
    scratch = place.parent / f".{place.name}-{secrets.token_hex(6)}.tmp"
    paths = []
    try:
        scratch.mkdir(parents=True)
        for path, text in pages:
            raise_if_signalled()
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).write_text(text, encoding="utf-8")
            paths.append(path)
        top_names = sorted({path.partition("/")[0] for path in paths})
        marker = {"schema_version": 1, "kind": KIND, "top": top_names}
        (scratch / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
        _swap(scratch, place)
    except OSError as error:
        raise file_error(place, "written", error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return len(paths) + 1


def _swap(scratch: Path, place: Path) -> None:
    """Replace `place` by `scratch` with two renames. If the second fails, undo the first."""
    old = scratch.with_suffix(".old")
    if place.is_dir():
        os.rename(place, old)
    try:
        os.rename(scratch, place)
    except OSError:
        if old.is_dir():
            os.rename(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)


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
        screen.say(f"{counts}: {self.files} files in {seconds_text(self.seconds)}")
        screen.say(f"look at it: open {self.index}")


def build_site(out: Path, target: Path | None, screen: Screen) -> BuiltSite:
    """Write the catalogue into a folder. Raises LoopError if the folder holds anything else."""
    start, place = time.monotonic(), check_out_folder(out)
    contents = gather_contents(read_setting(target), datetime.datetime.now(datetime.UTC))
    for entry in contents.damaged[: index.MAX_NAMED]:
        remark_once(f"left out: {entry.problem}")
    screen.status(f"writing {place}")
    with signals_as_flags():
        files = write_site(place, pages(shipped("templates") / "site", contents))
    return BuiltSite(
        target=contents.target.name,
        patterns=len(contents.patterns),
        sessions=len(contents.rows),
        variants=len(contents.target.variants),
        plans=len(contents.plans),
        damaged=len(contents.damaged),
        out=str(place),
        index=str(place / "index.html"),
        files=files,
        seconds=time.monotonic() - start,
    )


def gather_contents(setting: Setting, now: datetime.datetime) -> Contents:
    """The contents of a project's catalogue. Reports behind links, or of ids unsafe as file names, are ignored."""
    root = setting.project.sessions
    entries = index.entries(root)
    rows = [entry.row for entry in entries if entry.row is not None]
    patterns = {name: read.value for name, read in setting.patterns.items()}
    real_root = Path(os.path.realpath(root))
    reports = {row.id: real_root / row.id / REPORT for row in rows if stem(row.id) == row.id}
    reports = {name: p for name, p in reports.items() if p.is_file() and Path(os.path.realpath(p)) == p}
    return Contents(
        target=setting.target,
        patterns=patterns,
        statistics=prediction.compute_statistics(patterns, rows),
        plans={name: plan.value for name, plan in setting.plans.items()},
        rows=tuple(rows),
        damaged=tuple(entry for entry in entries if entry.problem),
        reports=reports,
        version=__version__,
        date=say.day(now),
    )
