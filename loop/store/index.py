"""The index of sessions: what every folder says, in one row each, without reading the folders again.

It is a file of JSON lines in the cache folder, each with a checksum. It is derived from the session folders and
brought up to date whenever it is read. A folder is read again when the size or time of its files has changed, or
its line is damaged. Where no file can be kept, every folder is read each time. While no session has changed, no
model is imported.
"""

import contextlib
import datetime
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from loop import __version__
from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, remark_once
from loop.base.places import cache_folder

if TYPE_CHECKING:
    from loop.model.index import SessionRow

LOOKED_BACK = 200
"""Predictions, proposals and decisions rest on so many sessions, the newest."""
NAMED = 5
"""So many damaged folders are named where rows are read; `loop sessions list` has all."""
FORMAT = f"19 {__version__}"
"""Of a line, and of what a row says; part of the stamp of a folder, so that another format is read again."""


class SessionListing(NamedTuple):
    """What a list says of one session folder; None: not known, or not yet."""

    folder: str
    target: str | None
    plan: str | None
    device: str | None
    status: str | None
    grade: str | None
    seconds: float | None
    usd: float | None
    fastest: str | None
    """The variant with the best mean ratio."""
    recorded: bool
    problem: str
    """What is wrong with its files; empty where nothing is."""
    readable: bool
    """Whether anything could be read of it: then it counts."""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "SessionListing":
        """What the index keeps of a folder, as a line of a list."""
        return cls(*(entry[name] for name in cls._fields))


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> "list[SessionRow]":
    """The sessions of a folder, oldest first: all, or the `last` so many, of one target.

    What is damaged or a copy is left out, and named (`read` returns it, too).
    """
    entries = _entries(root)
    for entry in [entry for entry in entries if entry["problem"]][:NAMED]:
        remark_once(f"left out: {entry['problem']}")
    chosen = [entry for entry in entries if target in (None, entry["target"])]
    return _rows(chosen, last)


def read_index(root: Path) -> "tuple[list[SessionRow], list[SessionListing]]":
    """All rows, and the folders that are damaged, of another format or copies."""
    entries = _entries(root)
    return _rows(entries), [SessionListing.of(entry) for entry in entries if entry["problem"]]


def listing(root: Path) -> list[SessionListing]:
    """A line for every session folder, oldest first, damaged ones and copies included."""
    return [SessionListing.of(entry) for entry in _entries(root)]


def _rows(entries: list[dict[str, Any]], last: int | None = None) -> "list[SessionRow]":
    from pydantic import TypeAdapter

    from loop.model.index import SessionRow

    texts = [entry["row"] for entry in entries if entry["readable"]]
    texts = texts[max(0, len(texts) - last) :] if last is not None else texts
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(texts)}]")


def file_of(root: Path) -> Path:
    """Where the index of a folder of sessions is kept: with what may be deleted."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.jsonl"


def _entries(root: Path) -> list[dict[str, Any]]:
    """What is known of each session folder, oldest first: fields of its listing, `started`, and `row` as JSON."""
    stamps, lines, entries = _stamps(root), dict[str, bytes](), dict[str, dict[str, Any]]()
    path, before = file_of(root), b""
    with contextlib.suppress(OSError):
        before = sums.read_regular(path)
    for line in before.splitlines():
        body, _, whole = sums.split_checksum(line)
        entry = json.loads(body) if whole else {}
        if whole and stamps.get(entry["folder"]) == entry["stamp"]:
            lines[entry["folder"]], entries[entry["folder"]] = line, entry
    for name in sorted(stamps.keys() - entries.keys()):
        entries[name] = _entry(root / name, stamps[name])
        lines[name] = sums.with_checksum(json.dumps(entries[name])).encode()
    after = b"".join(line + b"\n" for line in lines.values())
    if after != before:
        with contextlib.suppress(LoopError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, after, lasting=False)
    return sorted(entries.values(), key=lambda entry: (entry["started"], entry["folder"]))


def _stamps(root: Path) -> dict[str, str]:
    """Each session folder with size and time of the files that say what it is; the time in nanoseconds."""
    stamps = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as folders:
        for folder in folders:
            parts = []
            for name in ("session.json", "recorded.json", "record.json", "journal.jsonl"):
                try:
                    facts = os.stat(f"{folder.path}/{name}")
                    parts.append(f"{facts.st_size} {facts.st_mtime_ns}")
                except OSError:
                    parts.append("-")
            if folder.name[0] != "." and parts[:2] != ["-", "-"]:
                stamps[folder.name] = " ".join([FORMAT, *parts])
    return stamps


def _entry(folder: Path, stamp: str) -> dict[str, Any]:
    """What the index keeps of a folder."""
    from loop.store.rows import row_of  # Here: while no session has changed, no model is needed.

    row, problem = row_of(folder)
    entry: dict[str, Any] = dict.fromkeys(SessionListing._fields)
    entry |= {"folder": folder.name, "stamp": stamp, "problem": problem, "readable": row is not None}
    entry |= {"recorded": False, "started": ""}  # What was recorded elsewhere comes before all that was run here.
    if row is not None:
        names = ("target", "plan", "device", "status", "grade", "seconds", "usd", "fastest", "recorded")
        entry |= {name: getattr(row, name) for name in names} | {"row": row.model_dump_json()}
        if row.started:
            entry["started"] = row.started.astimezone(datetime.UTC).isoformat(timespec="microseconds")
        if row.recorded and not row.charges:
            entry["usd"] = None
    return entry
