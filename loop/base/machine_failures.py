"""Detects machine failures (full disk, no memory, no permission), so that no variant is blamed for them.

`loop` measures disks and error numbers. It does not trust what programs print.
"""

import contextlib
import errno
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import CannotStart, MachineFailure
from loop.base.places import cache_folder, state_folder

LEAST_BYTES = 1 << 20
"""A file system with less free space counts as full. A used-up quota shows only in a failed write."""
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that are machine failures only in folders of `loop` itself."""
OF_FOLDERS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, *REFUSED)
"""Error numbers that concern a folder."""
ADVICE = {
    errno.ENOSPC: "free space on {place}",
    errno.EDQUOT: "your quota is used up: free space on {place}",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make {place} writable again: its file system is read-only",
    errno.EACCES: "give yourself permission to write in {place}",
    errno.EPERM: "give yourself permission to write in {place}",
    errno.EIO: "look after the disk of {place}: it answers with errors",
    errno.ENOMEM: "free memory, or raise its limit (`ulimit -v`)",
    errno.EAGAIN: "end other processes, or raise their limit (`ulimit -u`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end other processes: the system has too many open files",
}
"""Error number to what to do next."""
NO_THREAD, NO_TEMPORARY = "can't start new thread", "No usable temporary directory"
"""Messages of Python errors that have no error number."""
NOT_LOADED, NOT_RUN = "failed to map segment", "permission denied"
"""Messages (lower case) for a library and a program on a file system mounted `noexec`."""
LOOKED_S = 0.02
"""Minimum seconds between two measurements by `Gauge.tick`."""


@dataclass(frozen=True)
class Folders:
    """The folders that a command and its child processes write to."""

    own: tuple[Path, ...] = ()
    """Folders that `loop` writes: sessions, cache, state, TMPDIR."""
    worked_in: tuple[Path, ...] = ()
    """Folders that only child processes write. Read-only is no failure there; a full disk is."""

    @classmethod
    def of(cls, sessions: Path | None = None, target: Path | None = None) -> "Folders":
        """The folders of this process, with the project's sessions and target folders if given."""
        own = (*filter(None, [sessions]), cache_folder(), state_folder(), temporary_folder())
        return cls(own, tuple(filter(None, [target])))

    def short(self) -> dict[Path, int]:
        """Folder to error number, for folders that are full or not writable now. Writes nothing."""
        numbers = {folder: write_error_of(folder) for folder in (*self.own, *self.worked_in)}
        return {f: number for f, number in numbers.items() if number and (f in self.own or number not in REFUSED)}

    def holding(self, path: Path) -> Path | None:
        """The own folder that contains `path`, else None. In TMPDIR only names with `loop-` count."""
        for folder in self.own:
            if path.is_relative_to(folder):
                first = path.relative_to(folder).parts[:1]
                if folder != temporary_folder() or not first or first[0].startswith(("loop-", ".loop-")):
                    return folder
        return None


def temporary_folder() -> Path:
    """The folder of temporary files: the user's TMPDIR, because children use it too; else the default."""
    with contextlib.suppress(FileNotFoundError):  # No temporary folder is writable.
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    return Path("/tmp")


def _state(folder: Path) -> tuple[Path, os.statvfs_result]:
    """The folder or its first existing parent, with the state of the file system. Raises OSError."""
    place = next((place for place in (folder, *folder.parents) if place.is_dir()), folder)
    return place, os.statvfs(place)


def write_error_of(folder: Path) -> int:
    """The error number that a write into the folder would give now; 0: it would work. Writes nothing."""
    try:
        place, state = _state(folder)
        if not os.access(place, os.W_OK | os.X_OK):
            return errno.EROFS if state.f_flag & os.ST_RDONLY else errno.EACCES
    except OSError as error:
        return error.errno or errno.EIO
    blocks = state.f_bavail if os.geteuid() else state.f_bfree
    return errno.ENOSPC if state.f_blocks and blocks * state.f_frsize < LEAST_BYTES else 0


def is_noexec(folder: Path) -> bool:
    """Whether the folder's file system is mounted `noexec`: programs and libraries do not run there."""
    with contextlib.suppress(OSError):
        return bool(_state(folder)[1].f_flag & getattr(os, "ST_NOEXEC", 0))
    return False


def failure_of_machine(number: int, place: Path | None = None) -> MachineFailure:
    """The error for a system error number with advice. `place`: the folder to blame, if any."""
    where = f"{place}: " if place and number in OF_FOLDERS else ""
    return MachineFailure(f"{where}{os.strerror(number)}", ADVICE[number].format(place=place or "the disk"))


def failure_behind(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The machine failure that caused an error, directly or by its chain of causes; else None."""
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return failure_of_machine(errno.EAGAIN)  # From a fork: locks and pipes catch their own EAGAIN.
    cause: BaseException | None = error
    while cause is not None:
        blamed = cause if isinstance(cause, MachineFailure) else _blamed(cause, folders)
        if blamed is not None:
            return blamed
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _blamed(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The machine failure that one error shows, without its causes; None if it shows none."""
    if isinstance(error, MemoryError):
        return failure_of_machine(errno.ENOMEM)
    forked = error.__cause__ if isinstance(error, CannotStart) else None
    if NO_THREAD in str(error) or (isinstance(forked, OSError) and forked.errno == errno.EAGAIN):
        return failure_of_machine(errno.EAGAIN)
    if NO_TEMPORARY in str(error):
        return failure_of_machine(folders.short().get(temporary_folder(), errno.EACCES), temporary_folder())
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    if number not in ADVICE or number == errno.EAGAIN:
        return None
    if number not in OF_FOLDERS:
        return failure_of_machine(number)
    # Folder to blame: the own folder that contains the file, else one measured as full.
    name = getattr(error, "filename", None)
    path = Path(name).absolute() if isinstance(name, str | Path) else None
    place = (folders.holding(path) if path else None) or (None if number in REFUSED else path)
    place = place or next((folder for folder, met in folders.short().items() if met == number), None)
    return None if number in REFUSED and place is None else failure_of_machine(number, place)


class Gauge:
    """Watches the folders during a step, to detect whether the machine failed meanwhile."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._begin = folders.short()
        self._met: dict[Path, int] = {}
        self._looked = 0.0

    def tick(self) -> None:
        """Measure, unless the last measurement is less than `LOOKED_S` ago."""
        if time.monotonic() - self._looked > LOOKED_S:
            self.look()

    def look(self) -> None:
        """Measure now: note folders that have become full or unwritable since the step began."""
        self._looked = time.monotonic()
        for folder, number in self.folders.short().items():
            if folder not in self._begin:
                self._met.setdefault(folder, number)

    def failure(self, *, bad: bool, text: str) -> MachineFailure | None:
        """The machine failure that makes the step's outcome meaningless; None if there was none.

        `bad`: whether the step failed. If it passed, a disk that was full before does not matter.
        `text`: all messages of the step. They select the folder to blame if several are full, or if one
        was unwritable from the start, which a command may not need.
        """
        self.look()
        if bad and (mounted := self._mounted_noexec(text)):
            return mounted
        short = self._met
        if bad and not short:
            now = sorted(self.folders.short().items(), key=lambda pair: str(pair[0]) not in text)
            short = {f: number for f, number in now if number not in REFUSED or str(f) in text}
        return next(
            (failure_of_machine(number, folder) for folder, number in short.items() if number in OF_FOLDERS), None
        )

    def _mounted_noexec(self, text: str) -> MachineFailure | None:
        """The failure that a folder is mounted `noexec`, if messages `text` (any case) show that."""
        small, folders = text.lower(), (*self.folders.own, *self.folders.worked_in)
        for folder in sorted(folders, key=lambda folder: str(folder) not in text):
            # "Permission denied" has other causes, so the text must name the folder.
            if (NOT_LOADED in small or (NOT_RUN in small and str(folder) in text)) and is_noexec(folder):
                variable = {
                    cache_folder(): "LOOP_CACHE",
                    state_folder(): "LOOP_STATE",
                    temporary_folder(): "TMPDIR",
                }
                name = variable.get(folder)
                other = f"name a folder elsewhere: export {name}=..." if name else "move it to another file system"
                return MachineFailure(f"{folder} is mounted noexec: nothing there can be loaded or run", other)
        return None
