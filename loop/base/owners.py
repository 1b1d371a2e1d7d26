"""Who else could change what lies at a path, by owners and modes of it and of every folder above.

A link and the place where it leads both count. `/tmp` is no danger as a folder above: because of its sticky bit,
only the owner of an entry can replace it. Members of a group that may write are trusted.
"""

import atexit
import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path


def stranger(path: Path) -> str:
    """Why somebody else could change what lies there, in words; empty where only we, a group and root can."""
    closed: Path | None = None
    for entry, facts, last in _way(path):
        if facts.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):  # Root, also that of a user namespace.
            return f"{entry} belongs to user {facts.st_uid}"
        if closed is not None and entry.is_relative_to(closed):
            continue
        for_all = facts.st_mode & stat.S_IWOTH and not stat.S_ISLNK(facts.st_mode)
        if for_all and (last or not facts.st_mode & stat.S_ISVTX):
            return f"everybody can write {entry} (mode {stat.S_IMODE(facts.st_mode):04o})"
        if stat.S_ISDIR(facts.st_mode) and not facts.st_mode & 0o011:  # Nobody else comes in there.
            closed = entry
    return ""


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Each folder above the path, the top first, then the path itself; with True for the path, else False.

    First as it is written, then where its links lead. What does not exist is left out.
    """
    for end in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
        for entry in (*reversed(end.parents), end):
            with contextlib.suppress(OSError):
                yield entry, os.lstat(entry), entry == end


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for the user alone. What cannot be made is not."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    with contextlib.suppress(OSError):
        for place in reversed(missing):
            place.mkdir(mode=0o700, exist_ok=True)


@functools.cache
def private_folder(name: str) -> Path:
    """A folder among temporary files; one for this process alone where another user has taken its name."""
    import tempfile

    folder = Path(tempfile.gettempdir()) / f"loop-{os.geteuid()}" / name
    make_private(folder)
    if folder.is_dir() and not stranger(folder):
        return folder
    alone = Path(tempfile.mkdtemp(prefix="loop-"))
    atexit.register(shutil.rmtree, alone, ignore_errors=True)
    return alone
