"""Advisory locks that end with their holder: one writer a session, one measurement a device."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loop.errors import LoopError


class Held(LoopError):
    """Somebody else holds the lock; `holder` says who, as far as the file tells."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path}: held by {holder}", hint="wait for it to end, or stop it")
        self.holder = holder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, or raise Held at once. The system frees it when this process ends."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise Held(path, _describe(file.read())) from error
        file.seek(0)
        file.truncate()
        file.write(json.dumps({"pid": os.getpid(), "boot_id": boot_id()}))
        file.flush()
        yield


def _describe(text: str) -> str:
    try:
        return f"process {json.loads(text)['pid']}"
    except (ValueError, KeyError, TypeError):
        return "another process"


def boot_id() -> str:
    """Which run of the system this is; a process number means nothing in another."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.is_file() else ""
