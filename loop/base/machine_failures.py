"""Failures of the machine are neither verdicts nor the target's fault: a full disk, no memory, no permission.

`loop` measures them. What a program printed decides nothing.
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
"""A file system with less room than this counts as full. A quota shows only where a write of ours meets it."""
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What is no failure of the machine outside of our own folders."""
OF_FOLDERS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, *REFUSED)
"""Error numbers that a folder is to blame for."""
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
"""What Python says without an error number."""
NOT_LOADED, NOT_RUN = "failed to map segment", "permission denied"
"""What is said, in small letters, of a library and of a program on a file system that is mounted `noexec`."""
LOOKED_S = 0.02
"""Ticks may come quicker than a look is worth."""


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
        own = (*filter(None, [sessions]), cache_folder(), state_folder(), temporary_folder())
        return cls(own, tuple(filter(None, [target])))

    def short(self) -> dict[Path, int]:
        """Each folder that cannot be written now, or is full, and the error number of it. Writes nothing."""
        numbers = {folder: write_error_of(folder) for folder in (*self.own, *self.worked_in)}
        return {f: number for f, number in numbers.items() if number and (f in self.own or number not in REFUSED)}

    def holding(self, path: Path) -> Path | None:
        """The one of our own folders that a path lies in; of TMPDIR only what is named as ours."""
        for folder in self.own:
            if path.is_relative_to(folder):
                first = path.relative_to(folder).parts[:1]
                if folder != temporary_folder() or not first or first[0].startswith(("loop-", ".loop-")):
                    return folder
        return None


def temporary_folder() -> Path:
    """Where temporary files go: TMPDIR as the user gave it, for children read it too."""
    with contextlib.suppress(FileNotFoundError):  # None can be written.
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    return Path("/tmp")


def _state(folder: Path) -> tuple[Path, os.statvfs_result]:
    """The folder, or the first one above it that exists, and what the system says of it. Raises OSError."""
    place = next((place for place in (folder, *folder.parents) if place.is_dir()), folder)
    return place, os.statvfs(place)


def write_error_of(folder: Path) -> int:
    """0, or the error number that a write into the folder would meet, by what the system says of it."""
    try:
        place, state = _state(folder)
        if not os.access(place, os.W_OK | os.X_OK):
            return errno.EROFS if state.f_flag & os.ST_RDONLY else errno.EACCES
    except OSError as error:
        return error.errno or errno.EIO
    blocks = state.f_bavail if os.geteuid() else state.f_bfree
    return errno.ENOSPC if state.f_blocks and blocks * state.f_frsize < LEAST_BYTES else 0


def is_noexec(folder: Path) -> bool:
    """Whether its file system is mounted so that nothing on it can be loaded or run."""
    with contextlib.suppress(OSError):
        return bool(_state(folder)[1].f_flag & getattr(os, "ST_NOEXEC", 0))
    return False


def failure_of_machine(number: int, place: Path | None = None) -> MachineFailure:
    """A failure of the machine: of a folder where a `place` is named, else of memory, processes or files."""
    where = f"{place}: " if place and number in OF_FOLDERS else ""
    return MachineFailure(f"{where}{os.strerror(number)}", ADVICE[number].format(place=place or "the disk"))


def failure_behind(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The failure of the machine that led to an error; None where something else did."""
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return failure_of_machine(errno.EAGAIN)  # From a fork: waits for locks and pipes catch it.
    cause: BaseException | None = error
    while cause is not None:
        blamed = cause if isinstance(cause, MachineFailure) else _blamed(cause, folders)
        if blamed is not None:
            return blamed
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _blamed(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The failure of the machine that one error speaks of, causes left out."""
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
    # The folder to blame: the one of ours that the file lies in, else one that is measured to be short.
    name = getattr(error, "filename", None)
    path = Path(name).absolute() if isinstance(name, str | Path) else None
    place = (folders.holding(path) if path else None) or (None if number in REFUSED else path)
    place = place or next((folder for folder, met in folders.short().items() if met == number), None)
    return None if number in REFUSED and place is None else failure_of_machine(number, place)


class Gauge:
    """Measures from the beginning of a step to its end."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._begin = folders.short()
        self._met: dict[Path, int] = {}
        self._looked = 0.0

    def tick(self) -> None:
        """Look, unless that was done a moment ago."""
        if time.monotonic() - self._looked > LOOKED_S:
            self.look()

    def look(self) -> None:
        """Look now."""
        self._looked = time.monotonic()
        for folder, number in self.folders.short().items():
            if folder not in self._begin:
                self._met.setdefault(folder, number)

    def failure(self, *, bad: bool, text: str) -> MachineFailure | None:
        """What failed while the step ran, so that its outcome means nothing; None where nothing did.

        `bad`: whether the outcome is a failure of anything. A good one stands on a disk that was full before.
        `text`: everything that the step says. It names the folder to blame where several are short, and where
        one could not be written from the first: a command may do without it.
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
        """The folder from which something could not be loaded or run, because it is mounted so."""
        small, folders = text.lower(), (*self.folders.own, *self.folders.worked_in)
        for folder in sorted(folders, key=lambda folder: str(folder) not in text):
            # Other files refuse to run, too: theirs are named.
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
