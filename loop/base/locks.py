"""Advisory locks that end with their holder: one writer a session, one user a device, one owner a folder."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from loop.base.errors import ErrorCode, LoopError, UsageError, WorkFailed


class Held(UsageError):
    """Somebody else holds the lock; `pid` and `holder` say who, as far as the file tells."""

    code: ErrorCode = "held"

    def __init__(self, path: Path, holder: str, pid: int | None = None) -> None:
        super().__init__(f"{path}: held by {holder}", hint="wait for it to end, or stop it")
        self.holder, self.pid = holder, pid


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock at `path`, or raise Held at once. The system frees it when this process ends.

    The file's number is for a child that inherits it: the lock is held until both have closed it.

    Raises LoopError when the file cannot be made or written.
    """
    with _open(path) as file:
        _take(file, path)
        yield file.fileno()


@contextmanager
def waiting(path: Path, seconds: float = 30.0) -> Iterator[None]:
    """The same for what takes moments: wait for the lock so long. Raises Held afterwards."""
    end = time.monotonic() + seconds
    with _open(path) as file:
        while True:
            try:
                _take(file, path)
                break
            except Held:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        yield


def held(path: Path) -> bool:
    """Whether somebody holds the lock at `path`; nothing is written, and no file is made.

    Raises LoopError when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise _unlockable(path, error) from error


@contextmanager
def own_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A fresh folder of ours with that prefix, removed at the end; so is what owners left that were killed.

    It is locked while we live, so that nobody takes it for left behind. Raises OSError when it cannot be made.
    """
    sweep(parent, prefix)
    handle = None
    while handle is None:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # A file system without locks: nobody can sweep there either.
                fcntl.flock(handle, fcntl.LOCK_EX)
            if (
                not os.fstat(handle).st_nlink or not folder.exists()
            ):  # Swept before it was locked: make another one.
                os.close(handle)
                handle = None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def sweep(parent: Path, prefix: str) -> None:
    """Remove folders of that prefix whose owner has ended: those that nobody holds."""
    for orphan in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # Held, somebody else's, or gone meanwhile.
            handle = os.open(orphan, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(orphan, ignore_errors=True)
            finally:
                os.close(handle)


def _open(path: Path) -> IO[str]:
    try:
        return path.open("a+", errors="replace")
    except OSError as error:
        raise _unlockable(path, error) from error


def _take(file: IO[str], path: Path) -> None:
    """Lock the file and write into it whose it is."""
    try:
        while not _is_ours(file):  # Somebody asks just now whether it is held, and lets go at once.
            time.sleep(0.001)
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"pid": os.getpid(), "boot_id": boot_id()}))
        file.flush()
    except BlockingIOError as error:
        file.seek(0)
        pid = None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            pid = int(json.loads(file.read())["pid"])
        raise Held(path, f"process {pid}" if pid else "another process", pid) from error
    except OSError as error:
        raise _unlockable(path, error) from error


def _is_ours(file: IO[str]) -> bool:
    """Whether the lock was taken; False where somebody only asks just now whether it is held.

    Raises BlockingIOError where it is held.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # As `held` does: who asks is in nobody's way.
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


def _unlockable(path: Path, error: OSError) -> LoopError:
    error.filename = error.filename or str(path)
    return WorkFailed(f"{path}: cannot be locked: {error.strerror}", hint="choose a folder that can be written")


def boot_id() -> str:
    """Which run of the system this is; a process number means nothing in another."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.is_file() else ""
