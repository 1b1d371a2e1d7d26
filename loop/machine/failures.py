"""Detects machine failures (full disk, no memory, no permission): no variant is to blame for them.

`loop` measures disks and error numbers. It does not trust what programs print.
"""

import contextlib
import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import ADVICE
from loop.base.errors import CannotStart, MachineFailure
from loop.base.places import cache_folder, state_folder

MIN_FREE_BYTES = 1 << 20  # A file system with less is full. A quota shows only in a failed write.
PERMISSION_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that are machine failures only in folders of `loop` itself."""
FOLDER_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, *PERMISSION_ERRORS)  # About a folder.
NO_THREAD_TEXT, NO_TEMPORARY_TEXT = "can't start new thread", "No usable temporary directory"
"""Messages of Python errors that have no error number."""
LIBRARY_REFUSED_TEXT, PROGRAM_REFUSED_TEXT = "failed to map segment", "permission denied"
"""Messages (lower case) for a library and a program on a file system mounted `noexec`."""


@dataclass(frozen=True)
class Folders:
    """The folders that a command and its child processes write to."""

    loop_folders: tuple[Path, ...] = ()  # Folders of `loop`: sessions, cache, state, TMPDIR.
    child_folders: tuple[Path, ...] = ()
    """Folders that only child processes write. Read-only is no failure there; a full disk is."""

    @classmethod
    def for_process(cls, sessions: Path | None = None, target: Path | None = None) -> "Folders":
        """The folders of this process, with the project's sessions and target folders if given."""
        folders = (*filter(None, [sessions]), cache_folder(), state_folder(), temporary_folder())
        return cls(folders, tuple(filter(None, [target])))

    def write_errors(self) -> dict[Path, int]:
        """Folder to error number, for folders that are full or not writable now. Writes nothing."""
        errors: dict[Path, int] = {}
        for folder in (*self.loop_folders, *self.child_folders):
            number = write_error_of(folder)
            may_be_denied = number in PERMISSION_ERRORS and folder not in self.loop_folders
            if number in FOLDER_ERRORS and not may_be_denied:
                errors[folder] = number
        return errors


def temporary_folder() -> Path:
    """The folder of temporary files: TMPDIR, which children inherit, or else Python's default."""
    with contextlib.suppress(FileNotFoundError):  # No temporary folder is writable.
        return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    return Path("/tmp")


def write_error_of(folder: Path) -> int:
    """The error number that a write into the folder would give; 0: it works. Writes nothing."""
    try:
        existing = next((path for path in (folder, *folder.parents) if path.is_dir()), folder)
        file_system = os.statvfs(existing)
        if not os.access(existing, os.W_OK | os.X_OK):
            return errno.EROFS if file_system.f_flag & os.ST_RDONLY else errno.EACCES
    except OSError as error:
        return error.errno or errno.EIO
    blocks = file_system.f_bavail if os.geteuid() else file_system.f_bfree
    is_full = file_system.f_blocks and blocks * file_system.f_frsize < MIN_FREE_BYTES
    return errno.ENOSPC if is_full else 0


def is_noexec(folder: Path) -> bool:
    """Whether the folder's file system is mounted `noexec`: no program or library runs there."""
    with contextlib.suppress(OSError):
        existing = next((path for path in (folder, *folder.parents) if path.is_dir()), folder)
        return bool(os.statvfs(existing).f_flag & os.ST_NOEXEC)
    return False


def machine_failure(number: int, folder: Path | None = None) -> MachineFailure:
    """The error for a number of `ADVICE`. `folder`: named if the error is about one."""
    prefix = f"{folder}: " if folder and number in FOLDER_ERRORS else ""
    hint = ADVICE[number].format(place=folder or "the disk")
    return MachineFailure(f"{prefix}{os.strerror(number)}", hint)


def find_machine_failure(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The machine failure that an error is, or that caused it by its chain of causes; else None.
    `folders`: where an error such as EACCES counts as a failure of the machine."""
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return machine_failure(errno.EAGAIN)  # From a fork: locks and pipes catch their own EAGAIN.
    cause: BaseException | None = error
    while cause is not None:
        if failure := _failure_of_error(cause, folders):
            return failure
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _failure_of_error(error: BaseException, folders: Folders) -> MachineFailure | None:
    """The machine failure that one error shows, without its causes; None if it shows none. It is in
    a folder of `loop` that contains the file, else in the file, else where this error is now."""
    if isinstance(error, MachineFailure):
        return error
    if isinstance(error, MemoryError):
        return machine_failure(errno.ENOMEM)
    start_error = error.__cause__ if isinstance(error, CannotStart) else None
    is_out_of_threads = isinstance(start_error, OSError) and start_error.errno == errno.EAGAIN
    if is_out_of_threads or NO_THREAD_TEXT in str(error):
        return machine_failure(errno.EAGAIN)
    if NO_TEMPORARY_TEXT in str(error):
        number = folders.write_errors().get(temporary_folder(), errno.EACCES)
        return machine_failure(number, temporary_folder())
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    if number not in ADVICE or number == errno.EAGAIN:
        return None
    if number not in FOLDER_ERRORS:
        return machine_failure(number)
    name = getattr(error, "filename", None)
    path = Path(name).absolute() if isinstance(name, str | Path) else None
    folder = None if number in PERMISSION_ERRORS else path
    for place in folders.loop_folders:
        if path is not None and path.resolve().is_relative_to(place.resolve()):
            first = path.resolve().relative_to(place.resolve()).parts[:1]
            # In TMPDIR only `loop-` names count.
            if place != temporary_folder() or not first or first[0].startswith(("loop-", ".loop-")):
                folder = place
                break
    if folder is None:
        errors_now = folders.write_errors()
        folder = next((place for place in errors_now if errors_now[place] == number), None)
    if number in PERMISSION_ERRORS and folder is None:
        return None
    return machine_failure(number, folder)


class FolderWatch:
    """Watches the folders during a step, to detect whether the machine failed meanwhile."""

    def __init__(self, folders: Folders) -> None:
        """Begin to watch: errors that a folder shows already are not the step's fault."""
        self.folders = folders
        self._errors_at_start = folders.write_errors()
        self._new_errors: dict[Path, int] = {}

    def measure(self) -> None:
        """Note folders that became full or unwritable since the step began. Call it every tick."""
        for folder, number in self.folders.write_errors().items():
            if folder not in self._errors_at_start:
                self._new_errors.setdefault(folder, number)

    def failure(self, *, has_failed: bool, messages: str) -> MachineFailure | None:
        """The machine failure that makes the step's outcome meaningless; None if there was none.
        `has_failed`: if not, a disk that was full before does not matter. `messages`: those of the
        step; a folder that they name is looked at first."""
        self.measure()
        lower, errors = messages.lower(), dict(self._new_errors)
        folders = (*self.folders.loop_folders, *self.folders.child_folders)
        named_first = sorted(folders, key=lambda folder: str(folder) not in messages)
        for folder in named_first if has_failed else ():
            # "Permission denied" has other causes, so the text must name the folder.
            program_refused = PROGRAM_REFUSED_TEXT in lower and str(folder) in messages
            if (LIBRARY_REFUSED_TEXT in lower or program_refused) and is_noexec(folder):
                hint = "LOOP_CACHE, LOOP_STATE and TMPDIR name folders elsewhere"
                return MachineFailure(f"{folder} is mounted noexec: nothing runs there", hint)
        errors_now = self.folders.write_errors() if has_failed and not errors else {}
        for folder in named_first:
            number = errors_now.get(folder, 0)
            if number and (number not in PERMISSION_ERRORS or str(folder) in messages):
                errors[folder] = number
        return next((machine_failure(number, folder) for folder, number in errors.items()), None)
