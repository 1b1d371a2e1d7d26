"""How long somebody was ready to run and had to wait for a core, as the kernel counts it.

Linux: the second number of /proc/<pid>/task/<tid>/schedstat, nanoseconds in the run queue.
"""

import contextlib
import os
import threading
from pathlib import Path

MOST_THREADS = 8
"""Threads of a worker that are looked at: reading a file takes some microseconds."""


class Waits:
    """The waiting of a worker's threads and of the judge's own."""

    def __init__(self, pid: int) -> None:
        own = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        tasks = sorted(Path(f"/proc/{pid}/task").glob("*/schedstat"))[:MOST_THREADS]
        self._files: list[int] = []
        for path in (own, *tasks):
            with contextlib.suppress(OSError):  # It has ended meanwhile, or this system does not tell.
                self._files.append(os.open(path, os.O_RDONLY))

    def read(self) -> float | None:
        """Seconds of waiting so far, of all together; None where the system does not tell."""
        if not self._files:
            return None
        try:
            return sum(int(os.pread(file, 64, 0).split()[1]) for file in self._files) / 1e9
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)
        self._files = []
