"""Who else could change what lies at a path, by owners and modes of it and of every folder above, as ssh looks.

A link and the place where it leads both count. `/tmp` is no danger as a folder above: because of its sticky bit,
only the owner of an entry can replace it.
"""

import atexit
import contextlib
import functools
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path


def stranger(path: Path) -> str:
    """Why somebody else could change what lies there, in words; empty where only the user and root can."""
    closed: Path | None = None
    for entry, facts, last in _way(path):
        owners = {0, os.geteuid()} if last else {0, os.geteuid(), os.stat("/").st_uid}  # Root of a user namespace.
        if facts.st_uid not in owners:
            return f"{entry} belongs to {_user(facts.st_uid)}"
        if closed is None or not entry.is_relative_to(closed):
            if why := _writers(entry, facts, last):
                return why
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


def _writers(entry: Path, facts: os.stat_result, last: bool) -> str:
    """Who else may write an entry by its mode; the modes of links mean nothing."""
    if stat.S_ISLNK(facts.st_mode) or (facts.st_mode & stat.S_ISVTX and not last):
        return ""
    mode = f"(mode {stat.S_IMODE(facts.st_mode):04o})"
    if facts.st_mode & stat.S_IWOTH:
        return f"everybody can write {entry} {mode}"
    if facts.st_mode & stat.S_IWGRP and not _is_private(facts.st_gid):
        name = str(facts.st_gid)
        with contextlib.suppress(KeyError):
            name = grp.getgrgid(facts.st_gid).gr_name
        return f"group {name} can write {entry} {mode}"
    return ""


def _is_private(gid: int) -> bool:
    """Whether a group is the user's or root's alone: of that name, with nobody else in it (umask 002)."""
    with contextlib.suppress(KeyError):
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
        members = {*group.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)}
        return group.gr_name in (me.pw_name, "root") and members <= {me.pw_name, "root"}
    return False


def _user(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    return f"user {uid}"


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
