"""The files of a target in a session, in `sources/<ground>.json`: a cure can name the files that it changed."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError
from loop.model.base import Model
from loop.store.sessions import SessionFolder, left_out

FOLDER = "sources"


class Snapshot(Model):
    """The files that the steps of a session stood on."""

    format: Literal[1] = 1
    """Format number."""
    ground: str
    """Hash of all of them."""
    files: dict[str, str] = Field(default_factory=dict)
    """Path from the target's folder to the hash of the content."""


def take(folder: SessionFolder, ground: str, files: Iterable[Path], target: Path) -> None:
    """Note what `files` are now, but for those that cannot be read. Raises LoopError where the disk refuses."""
    path = folder.path / FOLDER / f"{ground[:16]}.json"
    if path.exists():
        return
    digests = {}
    for file in files:
        with contextlib.suppress(OSError):
            digests[file.relative_to(target).as_posix()] = content_hash(file.read_bytes())
    path.parent.mkdir(exist_ok=True)
    sums.write_sealed(path, Snapshot(ground=ground, files=digests))


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


def changed(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """Files that differ between two snapshots; those that are new or gone, too."""
    names = sorted({*before.files, *after.files})
    return tuple(name for name in names if before.files.get(name) != after.files.get(name))
