"""The index of sessions: one row per session folder, cached in a file.

The file has one JSON line with a checksum per folder. Every read updates it: `loop` reads a folder
again when size or time of its files changed, or when its line is damaged. If the file cannot be
written, each read visits all folders.
"""

import contextlib
import datetime
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from loop import __version__
from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, remark_once
from loop.base.places import cache_folder
from loop.model.index import SessionRow
from loop.store.rows import compute_row

RECENT_SESSIONS = 200  # Number of newest sessions that predictions, proposals and decisions use.
MAX_NAMED = 5  # Messages name at most this many damaged folders; `loop sessions list --json` has all.
FORMAT = f"25 {__version__}"
"""Format of lines and rows. Each folder's stamp contains it, so a new format reads all folders again."""


class IndexEntry(NamedTuple):
    """What the index says of one session folder."""

    folder: str
    """Its name."""
    row: SessionRow | None
    """None for a copy and for a folder that cannot be read; statistics skip these."""
    problem: str
    """What is wrong with the folder's files; empty if nothing is."""


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> list[SessionRow]:
    """Index rows of the sessions below `root`, oldest first. Default: all.
    `last`: only so many newest. `target`: only this target's. Names damaged folders and skips them."""
    lines = _read_lines(root)
    for line in [line for line in lines if line["problem"]][:MAX_NAMED]:
        remark_once(f"left out: {line['problem']}")
    texts = [line["row"] for line in lines if line["row"] and target in (None, line["target"])]
    return _parse_rows(texts if last is None else texts[max(0, len(texts) - last) :])


def entries(root: Path) -> list[IndexEntry]:
    """One entry per session folder, oldest first, including damaged folders and copies."""
    lines = _read_lines(root)
    parsed_rows = iter(_parse_rows([line["row"] for line in lines if line["row"]]))
    rows = [next(parsed_rows) if line["row"] else None for line in lines]
    return [IndexEntry(line["folder"], row, line["problem"]) for line, row in zip(lines, rows, strict=True)]


def _parse_rows(texts: list[str]) -> list[SessionRow]:
    """The rows of the index from their JSON. One call for all of them is much faster than one each."""
    return TypeAdapter(list[SessionRow]).validate_json(f"[{','.join(texts)}]")


def index_file(root: Path) -> Path:
    """Path of the index file of a sessions folder, in the cache (safe to delete)."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.jsonl"


def _read_lines(root: Path) -> list[dict[str, Any]]:
    """Bring the index file up to date with the folders. Returns its lines as JSON objects, oldest session
    first. Each has the fields of IndexEntry (`row` as JSON text), `stamp`, `started` and `target`."""
    stamp_by_folder = _folder_stamps(root)
    line_by_folder, fields_by_folder = dict[str, bytes](), dict[str, dict[str, Any]]()
    path, old_content = index_file(root), b""
    with contextlib.suppress(OSError):
        old_content = sums.read_regular(path)
    for line in old_content.splitlines():
        body, _, is_intact = sums.split_checksum(line)
        entry = json.loads(body) if is_intact else {}
        if is_intact and stamp_by_folder.get(entry["folder"]) == entry["stamp"]:
            line_by_folder[entry["folder"]], fields_by_folder[entry["folder"]] = line, entry
    for name in sorted(stamp_by_folder.keys() - fields_by_folder.keys()):
        row, problem = compute_row(root / name)
        started = row.started.astimezone(datetime.UTC) if row and row.started else None
        fields_by_folder[name] = {
            "folder": name,
            "stamp": stamp_by_folder[name],
            "started": started.isoformat(timespec="microseconds") if started else "",  # Recorded sessions first.
            "target": row.target if row else None,
            "problem": problem,
            "row": row.model_dump_json() if row else None,
        }
        line_by_folder[name] = sums.with_checksum(json.dumps(fields_by_folder[name])).encode()
    new_content = b"".join(line + b"\n" for line in line_by_folder.values())
    if new_content != old_content:
        with contextlib.suppress(LoopError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, new_content, durable=False)
    return sorted(fields_by_folder.values(), key=lambda fields: (fields["started"], fields["folder"]))


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
            if folder.name[0] != "." and parts[:2] != ["-", "-"]:  # Else it holds no session.
                stamp_by_folder[folder.name] = " ".join([FORMAT, *parts])
    return stamp_by_folder
