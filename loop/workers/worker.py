"""The parent's end of a worker: its cores, the memory that it shares with us, and how it is stopped."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence

from loop.base.linux import is_stopped
from loop.calls.arena import Arena
from loop.calls.orders import Bell
from loop.workers.nursery import Nursery
from loop.workers.program import Program, thread_environment

STILL_S = 0.05
"""Seconds that we wait for a process to stop."""


class Worker(Program):
    """One worker process. It keeps to cores of its own, and shares memory with us: its calls can be timed."""

    def __init__(
        self,
        threads: int,
        *,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        self.cores = timed_cores(threads)
        """Numbers of the cores it keeps to, with commas; empty where the system chooses."""
        self._paused = False
        self.arena = Arena()
        given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.bell = None if given > threads else Bell()
        """How we sleep while it works; None where we have a core of our own to watch from."""
        ends = self.bell.handles if self.bell else ()
        try:
            super().__init__(
                "loop.workers.worker_program",
                *(self.cores, "@1", *(f"@{number}" for number in range(2, 2 + len(ends)))),
                environment={**thread_environment(threads, self.cores), **(environment or {})},
                handles=[self.arena.handle, *ends],
                under=under,
                nursery=nursery,
            )
        except BaseException:
            self._unshare()
            raise

    def _unshare(self) -> None:
        self.arena.close()
        if self.bell:
            self.bell.close()

    def pause(self) -> None:
        """Stop the child's process group, so that nothing of it runs while another side is timed."""
        if not self._paused and self.child.code is None:
            self._paused = True
            self._signal(signal.SIGSTOP)
            end = time.monotonic() + STILL_S  # On a busy machine it has to be given a core first.
            while not is_stopped(self.child.process.pid) and time.monotonic() < end:
                time.sleep(1e-5)

    def resume(self) -> None:
        """Let it go on."""
        if self._paused:
            self._paused = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # It has died: `receive` says how.
            os.killpg(self.child.process.pid, number)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """While it lasts nothing of the child runs."""
        was_paused = self._paused
        self.pause()
        try:
            yield
        finally:
            if not was_paused:
                self.resume()

    def close(self) -> None:
        """End the child, and free its pipes and the memory that we share."""
        self.resume()
        try:
            super().close()
        finally:
            self._unshare()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def timed_cores(threads: int) -> str:
    """The cores that a worker keeps to, as `2,3`: the last ones, for the first serve most interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    return ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[-threads:])
