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

from loop.base.documents.files import unusable_file
from loop.base.errors import ErrorCode, UsageError

ASKED_S = 0.2
"""Longer than anybody holds a lock who only asks whether it is held."""


class Held(UsageError):
    """Somebody else holds the lock; `pid` and `holder` say who, as far as the file tells."""

    code: ErrorCode = "held"

    def __init__(self, path: Path, holder: str, pid: int | None = None) -> None:
        super().__init__(f"{path}: held by {holder}", hint="wait for it to end, or stop it")
        self.holder, self.pid = holder, pid


@contextmanager
def locked(path: Path, seconds: float = ASKED_S) -> Iterator[int]:
    """Hold the lock at `path`, or raise Held where somebody else keeps it. The system frees it when we end.

    `seconds`: how long to wait for it. The file's number is for a child that inherits it: the lock is held until
    both have closed it. Raises LoopError when the file cannot be made or written.
    """
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(path.open("a+", errors="replace"))
            while not _try(file, fcntl.LOCK_EX):
                if time.monotonic() > end:
                    file.seek(0)
                    pid = None
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        pid = int(json.loads(file.read())["pid"])
                    raise Held(path, f"process {pid}" if pid else "another process", pid)
                time.sleep(0.005)
            file.seek(0)
            file.truncate()
            file.write(json.dumps({"pid": os.getpid(), "boot_id": boot_id()}))
            file.flush()
        except OSError as error:
            raise unusable_file(path, "written", error) from error
        yield file.fileno()


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock at `path`; nothing is written, and no file is made.

    Raises LoopError when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return not _try(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unusable_file(path, "read", error) from error


def _try(file: IO[bytes] | IO[str], how: int) -> bool:
    """Lock a file without waiting; whether it is locked."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def own_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A fresh folder of ours with that prefix, removed at the end; so is what owners left that were killed.

    It is locked while we live, so that nobody takes it for left behind. Raises OSError when it cannot be made.
    """
    for orphan in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # Held, somebody else's, or gone meanwhile.
            handle = os.open(orphan, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(orphan, ignore_errors=True)
            finally:
                os.close(handle)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):  # Swept before it was locked: make another one.
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # A file system without locks: nobody can sweep there either.
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                break
            os.close(handle)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def boot_id() -> str:
    """Which run of the system this is; a process number means nothing in another."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.is_file() else ""
