"""Snapshots of a target's files in a session's folder: `sources/<ground>.json`, so that a cure has its diff."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError
from loop.model.base import Model
from loop.store.sessions import SessionFolder, left_out

FOLDER = "sources"
MOST_FILE, MOST = 128 * 1024, 1024 * 1024
"""Bytes of one file, and of all together, whose text is kept."""
LONGEST_PATCH = 64 * 1024
"""Characters of a patch."""


class SourceFile(Model):
    """One file of a target."""

    digest: str
    """Hash of its content."""
    text: str | None = None
    """Its content; None where it is no text or too long."""


class Snapshot(Model):
    """The files that the steps of a session stood on."""

    format: Literal[1] = 1
    """Format number."""
    ground: str
    """Hash of all of them."""
    files: dict[str, SourceFile] = Field(default_factory=dict)
    """Path from the target's folder to the file."""


class Change(Model):
    """What differs between two snapshots."""

    files: tuple[str, ...] = ()
    """Files that differ."""
    patch: str = ""
    """The difference of those whose text was kept."""


def take(folder: SessionFolder, ground: str, files: Iterable[Path], target: Path) -> None:
    """Keep what `files` are now, but for those that cannot be read. Raises LoopError where the disk refuses."""
    path = folder.path / FOLDER / f"{ground[:16]}.json"
    if path.exists():
        return
    room, sources = MOST, {}
    for file in files:
        try:
            data = file.read_bytes()
        except OSError:
            continue
        text = None
        if len(data) <= min(room, MOST_FILE) and b"\0" not in data:
            with contextlib.suppress(UnicodeDecodeError):
                text = data.decode()
        room -= len(data) if text is not None else 0
        sources[file.relative_to(target).as_posix()] = SourceFile(digest=content_hash(data), text=text)
    path.parent.mkdir(exist_ok=True)
    sums.write_sealed(path, Snapshot(ground=ground, files=sources))


def every(folder: SessionFolder) -> list[Snapshot]:
    """The snapshots of a session, in the order in which they were taken; a damaged one is named and left out."""
    paths = sorted((folder.path / FOLDER).glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    snapshots = []
    for path in paths:
        try:
            snapshots.append(sums.read_sealed(Snapshot, path))
        except LoopError as error:
            left_out(error)
        except OSError:
            continue
    return snapshots


def change(before: Snapshot, after: Snapshot) -> Change:
    """What differs between two snapshots, as a patch where the texts were kept."""
    names = sorted({*before.files, *after.files})
    pairs = [(name, before.files.get(name), after.files.get(name)) for name in names]
    differ = [(name, old, new) for name, old, new in pairs if not (old and new and old.digest == new.digest)]
    patch = "".join(line for name, old, new in differ for line in _patch(name, old, new))
    return Change(files=tuple(name for name, _, _ in differ), patch=patch[:LONGEST_PATCH])


def _patch(name: str, before: SourceFile | None, after: SourceFile | None) -> Iterator[str]:
    """The difference of one file; a file that was not there is empty, one whose text was not kept has none."""
    old, new = (file.text if file else "" for file in (before, after))
    if old is None or new is None:
        return
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
