"""Snapshots of a target's files in a session's folder: `sources/<ground>.json`, so that a cure has its diff."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError
from loop.model.snapshot import Change, Snapshot, SourceFile
from loop.store.sessions import SessionFolder, left_out

FOLDER = "sources"
MOST_FILE, MOST = 128 * 1024, 1024 * 1024
"""Bytes of one file, and of all together, whose text is kept."""
LONGEST_PATCH = 64 * 1024
"""Characters of a patch."""
Committed = Callable[[str, str], str | None]
"""From a commit and a file to the text that it held; None where it is not known any more."""


def take(
    folder: SessionFolder,
    ground: str,
    files: Iterable[Path],
    target: Path,
    commit: str | None,
    dirty: Iterable[str],
) -> None:
    """Keep what `files` are now. Of a commit only those that differ from it (`dirty`) are kept with their text.

    Raises LoopError where the disk refuses. A file that cannot be read is left out.
    """
    path = folder.path / FOLDER / f"{ground[:16]}.json"
    if path.exists():
        return
    differ, room, found = set(dirty), MOST, {}
    for file in files:
        try:
            data = file.read_bytes()
        except OSError:
            continue
        name = file.relative_to(target).as_posix()
        text = _text(data) if (commit is None or name in differ) and len(data) <= min(room, MOST_FILE) else None
        room -= len(data) if text is not None else 0
        found[name] = SourceFile(digest=content_hash(data), text=text)
    path.parent.mkdir(exist_ok=True)
    sums.write_sealed(path, Snapshot(ground=ground, commit=commit, files=found))


def _text(data: bytes) -> str | None:
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def every(folder: SessionFolder) -> list[Snapshot]:
    """The snapshots of a session, in the order in which they were taken; a damaged one is named and left out."""
    paths = list((folder.path / FOLDER).glob("*.json"))
    found = (_read(path) for path in sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name)))
    return [one for one in found if one is not None]


def _read(path: Path) -> Snapshot | None:
    try:
        return sums.read_sealed(Snapshot, path)
    except OSError:
        return None
    except LoopError as error:
        left_out(error)
        return None


def change(before: Snapshot, after: Snapshot, committed: Committed) -> Change:
    """What differs between two snapshots, as a patch where the contents are known."""
    names = sorted(n for n in {*before.files, *after.files} if _digest(before, n) != _digest(after, n))
    patches, unknown = [], []
    for name in names:
        old, new = (_content(one, name, committed) for one in (before, after))
        if old is None or new is None:
            unknown.append(name)
        else:
            patches += list(_patch(name, old, new))
    return Change(files=tuple(names), patch="".join(patches)[:LONGEST_PATCH], unknown=tuple(unknown))


def _digest(snapshot: Snapshot, name: str) -> str:
    return snapshot.files[name].digest if name in snapshot.files else ""


def _content(snapshot: Snapshot, name: str, committed: Committed) -> str | None:
    """A file's content: empty where it was not there, None where it is not known."""
    file = snapshot.files.get(name)
    if file is None or file.text is not None:
        return "" if file is None else file.text
    text = committed(snapshot.commit, name) if snapshot.commit else None
    return text if text is not None and content_hash(text.encode()) == file.digest else None


def _patch(name: str, old: str, new: str) -> Iterator[str]:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def taken(folder: SessionFolder, ground: str) -> Snapshot | None:
    """The snapshot of a session on those files; None where none was taken."""
    found = _read(folder.path / FOLDER / f"{ground[:16]}.json")
    return found if found is not None and found.ground == ground else None
