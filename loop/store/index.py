"""The index of sessions: one row per session folder, cached in a file.

The file has one JSON line with a checksum per folder. Every read updates it: `loop` reads a folder
again when size or time of its files changed, or when its line is damaged. If the file cannot be
written, each read visits all folders. While no session has changed, no model is imported (startup).
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

RECENT_SESSIONS = 200
"""Number of newest sessions that predictions, proposals and decisions use."""
MAX_NAMED = 5
"""`rows` names at most this many damaged folders; `loop sessions list` names all."""
FORMAT = f"20 {__version__}"
"""Format of lines and rows. Each folder's stamp contains it, so a new format reads all folders again."""


class SessionListing(NamedTuple):
    """One line of `loop sessions list`. None: unknown, or the session has not ended."""

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
    """What is wrong with the folder's files; empty if nothing is."""
    readable: bool
    """Whether the folder has a row; statistics skip folders without one."""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "SessionListing":
        """The listing of one index entry."""
        return cls(*(entry[name] for name in cls._fields))


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> "list[SessionRow]":
    """Index rows of the sessions below `root`, oldest first. Default: all.
    `last`: only so many newest. `target`: only this target's. Names damaged folders and skips them."""
    entries = _read_entries(root)
    for entry in [entry for entry in entries if entry["problem"]][:MAX_NAMED]:
        remark_once(f"left out: {entry['problem']}")
    matching_entries = [entry for entry in entries if target in (None, entry["target"])]
    return _parse_rows(matching_entries, last)


def read_index(root: Path) -> "tuple[list[SessionRow], list[SessionListing]]":
    """All rows, oldest first, and the listings of folders that are damaged, unknown or copies."""
    entries = _read_entries(root)
    return _parse_rows(entries), [SessionListing.of(entry) for entry in entries if entry["problem"]]


def list_folders(root: Path) -> list[SessionListing]:
    """One listing per session folder, oldest first, including damaged folders and copies."""
    return [SessionListing.of(entry) for entry in _read_entries(root)]


def _parse_rows(entries: list[dict[str, Any]], last: int | None = None) -> "list[SessionRow]":
    """The rows in these index entries, of which `last` limits the number. Folders without a row are skipped."""
    from pydantic import TypeAdapter

    from loop.model.index import SessionRow

    texts = [entry["row"] for entry in entries if entry["readable"]]
    texts = texts[max(0, len(texts) - last) :] if last is not None else texts
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(texts)}]")


def index_file(root: Path) -> Path:
    """Path of the index file of a sessions folder, in the cache (safe to delete)."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.jsonl"


def _read_entries(root: Path) -> list[dict[str, Any]]:
    """Bring the index file up to date with the folders; return its entries, oldest first.
    An entry has the fields of SessionListing, `started`, `stamp`, and `row` as JSON."""
    stamp_by_folder = _folder_stamps(root)
    line_by_folder, entry_by_folder = dict[str, bytes](), dict[str, dict[str, Any]]()
    path, old_content = index_file(root), b""
    with contextlib.suppress(OSError):
        old_content = sums.read_regular(path)
    for line in old_content.splitlines():
        body, _, is_intact = sums.split_checksum(line)
        entry = json.loads(body) if is_intact else {}
        if is_intact and stamp_by_folder.get(entry["folder"]) == entry["stamp"]:
            line_by_folder[entry["folder"]], entry_by_folder[entry["folder"]] = line, entry
    for name in sorted(stamp_by_folder.keys() - entry_by_folder.keys()):
        entry_by_folder[name] = _make_entry(root / name, stamp_by_folder[name])
        line_by_folder[name] = sums.with_checksum(json.dumps(entry_by_folder[name])).encode()
    new_content = b"".join(line + b"\n" for line in line_by_folder.values())
    if new_content != old_content:
        with contextlib.suppress(LoopError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, new_content, durable=False)
    return sorted(entry_by_folder.values(), key=lambda entry: (entry["started"], entry["folder"]))


def _folder_stamps(root: Path) -> dict[str, str]:
    """Folder name to its stamp: index format, then size and time (ns) of each of its main files."""
    stamp_by_folder = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as folders:
        for folder in folders:
            parts = []
            for name in ("session.json", "recorded.json", "record.json", "journal.jsonl"):
                try:
                    status = os.stat(f"{folder.path}/{name}")
                    parts.append(f"{status.st_size} {status.st_mtime_ns}")
                except OSError:
                    parts.append("-")
            if folder.name[0] != "." and parts[:2] != ["-", "-"]:
                stamp_by_folder[folder.name] = " ".join([FORMAT, *parts])
    return stamp_by_folder


def _make_entry(folder: Path, stamp: str) -> dict[str, Any]:
    """The index entry of one folder. `stamp`: size and time of its files, to detect changes."""
    from loop.store.rows import compute_row  # Imported late: an unchanged index needs no model.

    row, problem = compute_row(folder)
    entry: dict[str, Any] = dict.fromkeys(SessionListing._fields)
    entry |= {"folder": folder.name, "stamp": stamp, "problem": problem, "readable": row is not None}
    entry |= {"recorded": False, "started": ""}  # Empty sorts recorded sessions first.
    if row is not None:
        names = ("target", "plan", "device", "status", "grade", "seconds", "usd", "fastest", "recorded")
        entry |= {name: getattr(row, name) for name in names} | {"row": row.model_dump_json()}
        if row.started:
            entry["started"] = row.started.astimezone(datetime.UTC).isoformat(timespec="microseconds")
        if row.recorded and not row.charges:  # The report of an imported session states no cost.
            entry["usd"] = None
    return entry
