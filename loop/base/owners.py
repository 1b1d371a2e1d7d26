"""Who else could change what lies at a path: owners and modes of it and of every folder above, as ssh looks.

A link is looked at itself, and then where it leads. `/tmp` is no danger as a folder above: there (its sticky bit)
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
from collections import deque
from collections.abc import Iterator
from pathlib import Path

MOST_LINKS = 40
"""Links that are followed, as the kernel does."""
OVERFLOW = Path("/proc/sys/kernel/overflowuid")
UID_MAP = Path("/proc/self/uid_map")
ALL_USERS = ["0", "0", "4294967295"]
"""What stands in the map of the first user namespace."""


def stranger(path: Path) -> str:
    """Why somebody else could change what lies there, in words; empty where only the user and root can."""
    closed = False
    for entry, found, last in _way(path):
        why = _whose(entry, found, last) or ("" if closed else _writers(entry, found, last))
        if why:
            return why
        closed |= stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o011  # Nobody else comes in there.
    return ""


def wider(path: Path) -> str:
    """Why more people could change a folder of a project than the project itself; empty where none could.

    Who can write the project's folder can change its kernels; so its owner, and its group, may share.
    """
    try:
        found, around = os.lstat(path), os.stat(path.parent)
    except OSError:
        return ""
    if found.st_uid not in {0, os.geteuid(), around.st_uid}:
        return f"{path} belongs to {_user(found.st_uid)}"
    if stat.S_ISLNK(found.st_mode):
        return stranger(path.resolve())
    shared = around.st_mode & 0o022 if not around.st_mode & stat.S_ISVTX else 0
    same = found.st_gid == around.st_gid
    return "" if found.st_mode & 0o022 & ~shared == 0 and same else _writers(path, found, True)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Every entry looked up on the way to a path, links included, up to a missing one; whether it is the last."""
    here, rest, links = Path("/"), deque(path.absolute().parts[1:]), 0
    yield here, os.lstat(here), not rest
    while rest and links < MOST_LINKS:
        part = rest.popleft()
        entry = here.parent if part == ".." else here / part
        try:
            found = os.lstat(entry)
        except OSError:
            return
        yield entry, found, not rest
        if stat.S_ISLNK(found.st_mode):
            links += 1
            target = Path(os.readlink(entry))
            here = Path("/") if target.is_absolute() else here
            rest.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        else:
            here = entry


def _whose(entry: Path, found: os.stat_result, last: bool) -> str:
    ours = {0, os.geteuid()} if last else {0, os.geteuid(), *_unmapped_root()}
    return "" if found.st_uid in ours else f"{entry} belongs to {_user(found.st_uid)}"


def _writers(entry: Path, found: os.stat_result, last: bool) -> str:
    """Who else may write an entry by its mode; the modes of links mean nothing."""
    if stat.S_ISLNK(found.st_mode) or (found.st_mode & stat.S_ISVTX and not last):
        return ""
    mode = f"(mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & stat.S_IWOTH:
        return f"everybody can write {entry} {mode}"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"group {_group(found.st_gid)} can write {entry} {mode}"
    return ""


def _is_private(gid: int) -> bool:
    """Whether a group is the user's or root's alone: of that name, with nobody else in it (umask 002)."""
    with contextlib.suppress(KeyError):
        me, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
        members = {*group.gr_mem, *(one.pw_name for one in pwd.getpwall() if one.pw_gid == gid)}
        return group.gr_name in (me.pw_name, "root") and members <= {me.pw_name, "root"}
    return False


def _user(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    return f"user {uid}"


def _group(gid: int) -> str:
    with contextlib.suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)


@functools.cache
def _unmapped_root() -> frozenset[int]:
    """In a user namespace the owner of `/` may have no number here, and stands for root."""
    with contextlib.suppress(OSError, ValueError):
        if UID_MAP.read_text().split() != ALL_USERS:
            return frozenset({int(OVERFLOW.read_text())})
    return frozenset()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for the user alone. What cannot be made is not."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    with contextlib.suppress(OSError):
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)


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
