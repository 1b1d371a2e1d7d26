"""`loop cache`: what the cache holds and its size; all of it can be made again."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.places import cache_folder
from loop.base.screen import Screen
from loop.builds.known_builds import QUESTIONS

DAY_S = 86_400.0
WHAT = {
    "builds": "compiled kernels",
    "index": "index of sessions",
    "tasks": "targets made of tasks in other formats",
}


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: a build, or an index."""

    part: str
    path: Path
    bytes: int
    days: float
    """Since it was written."""


def entries(cache: Path) -> Iterator[Entry]:
    """All of them."""
    for part in WHAT:
        for path in sorted((cache / part).glob("*")) if (cache / part).is_dir() else ():
            files = [one for one in (path, *path.rglob("*")) if one.is_file()]
            stats = [one.stat() for one in files]
            newest = max((one.st_mtime for one in stats), default=path.stat().st_mtime)
            yield Entry(part, path, sum(one.st_size for one in stats), (time.time() - newest) / DAY_S)


def show_cache(screen: Screen, *, as_json: bool) -> int:
    """Its parts, with entries and size."""
    found = list(entries(cache_folder()))
    parts = [
        {"what": what, "entries": sum(one.part == part for one in found), "bytes": _size(found, part)}
        for part, what in WHAT.items()
    ]
    if as_json:
        screen.data(to_json({"schema_version": 1, "folder": cache_folder(), "parts": parts}))
        return ExitCode.OK
    screen.table(("what", "entries", "size"), [(p["what"], p["entries"], _megabytes(p["bytes"])) for p in parts])
    screen.say(f"in {cache_folder()}; to empty it: loop cache clean")
    return ExitCode.OK


def clean_cache(older_than: float, yes: bool, screen: Screen, *, as_json: bool) -> int:
    """Remove what was written so many days ago or more; asks first."""
    cache = cache_folder()
    chosen = [one for one in entries(cache) if one.days >= older_than and one.path.name != QUESTIONS]
    size = sum(one.bytes for one in chosen)
    said = f"{len(chosen)} entries, {_megabytes(size)}"
    agreed = yes or (bool(chosen) and not as_json and screen.confirm(f"Remove {said} from {cache}?"))
    for one in chosen if agreed else ():
        _remove(one, cache)
    if as_json:
        fields = {"folder": cache, "entries": len(chosen), "bytes": size, "removed": agreed}
        screen.data(to_json({"schema_version": 1, **fields}))
    elif not chosen:
        screen.say("nothing to remove")
    else:
        screen.say(
            f"removed: {said}" if agreed else f"nothing was removed of {said}; to do it: loop cache clean --yes"
        )
    return ExitCode.OK


def _remove(one: Entry, cache: Path) -> None:
    """An entry, and for a build what says how it was made. What somebody else has removed meanwhile is gone."""
    if not one.path.is_dir():
        one.path.unlink(missing_ok=True)
        return
    for question in (cache / "builds" / QUESTIONS).glob(f"*/{one.path.name.partition('-')[0]}.json"):
        question.unlink(missing_ok=True)
    shutil.rmtree(one.path, ignore_errors=True)


def _size(found: list[Entry], part: str) -> int:
    return sum(one.bytes for one in found if one.part == part)


def _megabytes(size: object) -> str:
    assert isinstance(size, int)
    return f"{size / 1e6:,.1f} MB"
