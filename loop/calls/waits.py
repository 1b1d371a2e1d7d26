"""How long threads were ready to run and waited for a core, as the kernel counts it.

Linux: /proc/<pid>/task/<tid>/schedstat, nanoseconds on a core, then nanoseconds in the run queue.
"""

import contextlib
import os
import threading
from typing import NamedTuple

MOST_THREADS = 8
"""Threads of a worker that are looked at: reading a file takes some microseconds."""


class Delays(NamedTuple):
    """Seconds so far."""

    judge: float
    """That the judge waited for a core."""
    worker: float
    """That threads of the worker did, all together."""
    ran: float
    """That the worker's first thread was on a core."""

    def since(self, before: "Delays", *, shared: bool) -> float:
        """Seconds of waiting since then that lengthened what was timed.

        `shared`: the judge sleeps on the worker's core. Waiting for the worker is no delay then: the judge has
        nothing to do until the worker is done.
        """
        judge, worker, ran = (now - then for now, then in zip(self, before, strict=True))
        return worker + max(0.0, judge - ran if shared else judge)


class Waits:
    """The waiting of a worker's threads and of the judge's own."""

    def __init__(self, pid: int) -> None:
        self._files: list[int] = []
        others: list[str] = []
        with contextlib.suppress(OSError):  # It has ended meanwhile, or this system does not tell.
            others = [task for task in os.listdir(f"/proc/{pid}/task") if task != str(pid)]
        tasks = [f"{pid}/task/{task}" for task in (str(pid), *others)][:MOST_THREADS]
        for task in (f"self/task/{threading.get_native_id()}", *tasks):
            with contextlib.suppress(OSError):
                self._files.append(os.open(f"/proc/{task}/schedstat", os.O_RDONLY))

    def read(self) -> Delays | None:
        """What they waited so far; None where the system does not tell."""
        try:
            numbers = [tuple(map(int, os.pread(file, 64, 0).split()[:2])) for file in self._files]
            (_, own), (ran, first), *others = numbers
        except (OSError, ValueError):
            return None
        return Delays(own / 1e9, (first + sum(waited for _, waited in others)) / 1e9, ran / 1e9)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())
