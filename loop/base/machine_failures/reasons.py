"""From an error, or an error number, to what failed and what to do about it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import CannotStart, MachineFailure
from loop.base.machine_failures.folders import LEAST_BYTES, REFUSED, Folders, temporary

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
OF_FOLDERS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, *REFUSED)
"""Error numbers that a folder is to blame for."""
NO_THREAD, NO_TEMPORARY = "can't start new thread", "No usable temporary directory"
"""What Python says without an error number."""


def failure(number: int, place: Path | None = None) -> MachineFailure:
    """A failure of the machine: of a folder where a `place` is named, else of memory, processes or files."""
    words = os.strerror(number)
    where = f"{place}: " if place and number in OF_FOLDERS else ""
    return MachineFailure(f"{where}{words}", ADVICE[number].format(place=place or "the disk"))


def behind(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The failure of the machine that led to an error; None where something else did."""
    if _number(error) == errno.EAGAIN:  # From a fork: what waits for a lock or a pipe catches it.
        return failure(errno.EAGAIN)
    for one in _chain(error):
        found = one if isinstance(one, MachineFailure) else _blamed(one, folders)
        if found is not None:
            return found
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _blamed(error: BaseException, folders: Folders) -> MachineFailure | None:
    if isinstance(error, MemoryError):
        return failure(errno.ENOMEM)
    if NO_THREAD in str(error) or (isinstance(error, CannotStart) and _number(error.__cause__) == errno.EAGAIN):
        return failure(errno.EAGAIN)
    if NO_TEMPORARY in str(error):
        return failure(folders.short().get(temporary(), errno.EACCES), temporary())
    number = _number(error)
    if number not in ADVICE or number == errno.EAGAIN:
        return None
    place = _place(error, number, folders) if number in OF_FOLDERS else None
    return None if number in REFUSED and place is None else failure(number, place)


def _number(error: BaseException | None) -> int:
    return (error.errno or 0) if isinstance(error, OSError) else 0


def _place(error: BaseException, number: int, folders: Folders) -> Path | None:
    """The folder to blame: the one of ours that the file lies in, else one that is measured to be short."""
    named = getattr(error, "filename", None)
    path = Path(named).absolute() if isinstance(named, str | Path) else None
    mine = folders.holding(path) if path else None
    if mine is not None or (path is not None and number not in REFUSED):
        return mine or path
    short = folders.tried(LEAST_BYTES)
    return next((folder for folder, found in short.items() if found == number), None)
