"""Advisory locks that end with their process: of sessions, devices and temporary folders."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loop.base.documents import file_error
from loop.base.errors import ErrorCode, UsageError

DEFAULT_WAIT_S = 0.2  # Default wait in seconds. `is_locked` holds a lock for less than this time.


class LockHeld(UsageError):
    """Another process holds the lock. `pid` and `holder` name it; `pid` is None if unknown."""

    code: ErrorCode = "held"

    def __init__(self, path: Path, holder: str, pid: int | None = None) -> None:
        """`holder`: who has the lock, in words. `pid`: number of that process; None if unknown."""
        super().__init__(f"{path}: held by {holder}", hint="wait for it to end, or stop it")
        self.holder, self.pid = holder, pid


@contextmanager
def locked(path: Path, wait_s: float = DEFAULT_WAIT_S) -> Iterator[int]:
    """Lock file `path` in this block, and write this process's number to it. Yields the descriptor,
    by which a child shares the lock. Raises LockHeld if it is not free after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    with contextlib.ExitStack() as files:
        try:
            file = files.enter_context(path.open("a+", errors="replace"))
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    file.seek(0)
                    pid = None
                    with contextlib.suppress(ValueError):
                        pid = int(file.read())
                    raise LockHeld(path, f"process {pid}" if pid else "another process", pid)
                time.sleep(0.005)
            file.seek(0)
            file.truncate()
            file.write(str(os.getpid()))
            file.flush()
        except OSError as error:
            raise file_error(path, "written", error) from error
        yield file.fileno()


def is_locked(path: Path) -> bool:
    """Whether any process holds the lock at `path`. Raises LoopError for an unreadable file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise file_error(path, "read", error) from error


@contextmanager
def locked_temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent`, removed after this block. Also removes that of killed processes."""
    for old_folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # Locked, of another user, or already gone.
            handle = os.open(old_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old_folder, ignore_errors=True)
            finally:
                os.close(handle)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Another process may remove the folder before it is locked: then make a new one.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            # A file system without locks: then no process can lock and remove it either.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                break
            os.close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
