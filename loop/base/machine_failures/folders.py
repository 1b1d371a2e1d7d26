"""Can a folder be written, and is there room? Asked of the file system, at worst by writing."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.places import cache_folder, state_folder

LEAST_BYTES = 1 << 20
"""A file system with less room than this counts as full."""
PLENTY_BYTES = 256 << 20
"""With more room than this no compiler runs out of it."""
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What is no failure of the machine outside of our own folders."""


@dataclass(frozen=True)
class Folders:
    """The folders that a command writes to."""

    own: tuple[Path, ...] = ()
    """Ours: sessions, cache, state, TMPDIR."""
    worked_in: tuple[Path, ...] = ()
    """Where only what we start may write: they may be read-only, and still be full."""

    @classmethod
    def of(cls, sessions: Path | None = None, target: Path | None = None) -> "Folders":
        """Those of this process, and of a project where there is one."""
        own = (*filter(None, [sessions]), cache_folder(), state_folder(), temporary())
        return cls(own, tuple(filter(None, [target])))

    def short(self) -> dict[Path, int]:
        """Each folder that cannot be written now, or is full, and the error number of it. Writes nothing."""
        found = {folder: glance(folder) for folder in (*self.own, *self.worked_in)}
        return {folder: number for folder, number in found.items() if number and self._counts(folder, number)}

    def tried(self, bytes_: int) -> dict[Path, int]:
        """The same, found by writing so many bytes into each of our own folders."""
        found = self.short()
        return {**{folder: number for folder in self.own if (number := write(folder, bytes_))}, **found}

    def _counts(self, folder: Path, number: int) -> bool:
        return folder in self.own or number not in REFUSED

    def holding(self, path: Path) -> Path | None:
        """The one of our own folders that a path lies in; of TMPDIR only what is named as ours."""
        holds = [folder for folder in self.own if path.is_relative_to(folder)]
        return next((one for one in holds if one != temporary() or _is_ours(path.relative_to(one))), None)


def _is_ours(path: Path) -> bool:
    """Whether a path within TMPDIR is named as ours are."""
    return path.parts[:1] == () or path.parts[0].startswith(("loop-", ".loop-"))


def temporary() -> Path:
    """Where temporary files go: TMPDIR as the user gave it, for children read it too."""
    with contextlib.suppress(FileNotFoundError):  # None can be written.
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    return Path("/tmp")


def there(folder: Path) -> Path:
    """The folder, or the first one above it that exists."""
    return next((one for one in (folder, *folder.parents) if one.is_dir()), folder)


def glance(folder: Path) -> int:
    """0, or the error number that a write into the folder would meet, by what the system says of it."""
    place = there(folder)
    try:
        state = os.statvfs(place)
        if not os.access(place, os.W_OK | os.X_OK):
            return errno.EROFS if state.f_flag & os.ST_RDONLY else errno.EACCES
    except OSError as error:
        return error.errno or errno.EIO
    blocks = state.f_bavail if os.geteuid() else state.f_bfree
    return errno.ENOSPC if state.f_blocks and blocks * state.f_frsize < LEAST_BYTES else 0


def write(folder: Path, bytes_: int) -> int:
    """0, or the error number of writing a file of that size into the folder; it is removed again."""
    try:
        with _probe(there(folder)) as handle:
            os.posix_fallocate(handle, 0, bytes_)
            os.pwrite(handle, os.urandom(4096), 0)
            os.fsync(handle)
    except OSError as error:
        return 0 if error.errno in (errno.EOPNOTSUPP, errno.EINVAL) else error.errno or errno.EIO
    return 0


@contextlib.contextmanager
def _probe(folder: Path) -> Iterator[int]:
    handle, name = tempfile.mkstemp(prefix=".loop-probe-", dir=folder)
    try:
        os.unlink(name)
        yield handle
    finally:
        os.close(handle)
