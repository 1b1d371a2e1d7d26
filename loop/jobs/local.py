"""The default executor: a job a GPU of this machine at a time, and jobs for processors beside them.

A slot is a thread. It holds the lock on its GPU's UUID while a job runs, so that two executors share a machine.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.locks import Held, locked
from loop.base.remarks import remark
from loop.jobs.folder import PID, JobFolder, jobs_folder
from loop.jobs.groups import devices
from loop.jobs.running import refuse, run
from loop.machine.gpus import VISIBLE
from loop.model.jobs import State, Where

FAILURES = 2
"""Jobs that a slot may lose in a row; then it is set aside, unless it is the last."""
ENDS_S = 60.0
WRONG = (LoopError, OSError, RuntimeError, ValueError, MemoryError)
"""A disk that is full or lost, a file that is torn, a machine without room for one more thread."""


@dataclass
class Slot:
    """Where one job runs at a time."""

    where: Where
    env: Mapping[str, str]
    """What a command sees besides, as which GPU it may use."""
    number: int = 0
    lost: int = 0
    """Jobs in a row that it did not bring to an end."""
    aside: bool = False
    """Whether it gets no further job, where another of its kind is left."""

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.where.device != "cpu"


def check() -> None:
    """It needs nothing."""


def opened(width: int) -> "Local":
    """`width` GPUs at most, and as many jobs for processors beside them."""
    places = devices(gpu=True)
    slots = [Slot(place, {VISIBLE: place.uuid}) for place in places if place.device != "cpu"][:width]
    return Local([*slots, *(Slot(devices(gpu=False)[0], {}) for _ in range(width))])


class Local:
    """Threads that take jobs, each for one slot."""

    def __init__(self, slots: Sequence[Slot], locks: Path | None = None) -> None:
        self.slots = list(slots)
        self.locks = locks or jobs_folder() / ".slots"
        self.locks.mkdir(parents=True, exist_ok=True)
        self._queue: deque[JobFolder] = deque()
        self._running: dict[str, bool] = {}
        """Ids of jobs at work, and whether they have to be alone."""
        self._failed: set[str] = set()
        """Those whose end could not be noted in their folders."""
        self._changed = threading.Condition()
        self._closed = False
        self._ends = self._told = 0
        """Jobs that have ended, and as many when somebody last rested."""
        self._threads = [threading.Thread(target=self._work, args=[slot], daemon=True) for slot in self.slots]
        for number, thread in enumerate(self._threads):
            self.slots[number].number = number
            thread.start()

    def submit(self, job: JobFolder) -> None:
        """Put it at the end of the queue. A job for a GPU runs on the processor's slots where there is none."""
        with self._changed:
            self._failed.discard(job.id)
            self._queue.append(job)
            self._changed.notify_all()

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """By their folders; one that is taken and has no process yet is running."""
        with self._changed:
            busy = {*self._running, *(job.id for job in self._queue)}
            failed = {*self._failed}
        return {
            job.id: "running" if job.id in busy else "failed" if job.id in failed else job.state for job in jobs
        }

    def rest(self, seconds: float) -> None:
        """Wait so long at most; no longer where a job ends or is submitted, or ended since the last rest."""
        with self._changed:
            if self._ends == self._told:
                self._changed.wait(seconds)
            self._told = self._ends

    def cancel(self, job: JobFolder) -> None:
        """Take it out of the queue, or have its command ended."""
        job.cancel()
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def collect(self, job: JobFolder) -> None:
        """It is here already."""

    def avoid(self, uuid: str) -> bool:
        """End the slots of a device, where another of its kind is left."""
        with self._changed:
            mine = [slot for slot in self.slots if slot.where.uuid == uuid]
            spare = any(
                other.where.uuid != uuid and other.gpu == slot.gpu for slot in mine for other in self.slots
            )
            for slot in mine if spare else ():
                slot.aside = True
            self._changed.notify_all()
        return spare

    def close(self) -> None:
        """Wait for what was cancelled."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = time.monotonic() + ENDS_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self, slot: Slot) -> None:
        while (job := self._next(slot)) is not None:
            code = self._code(slot, job)
            slot.lost = slot.lost + 1 if code is None or code < 0 else 0
            with self._changed:
                del self._running[job.id]
                self._ends += 1
                if code is None:
                    self._failed.add(job.id)
                self._changed.notify_all()

    def _code(self, slot: Slot, job: JobFolder) -> int | None:
        """How a job ended; None where not even that could be noted, as on a full disk."""
        try:
            try:
                with self._held(slot):
                    return run(job, slot.env, slot.where)
            except WRONG as error:  # A slot outlives whatever its jobs run into.
                return refuse(job, str(error))
        except WRONG as error:
            with contextlib.suppress(OSError):
                (job.path / PID).unlink()  # Else it would seem to run as long as this process does.
            remark(f"job {job.id} failed, and that cannot be noted: {error}")
            return None

    def _next(self, slot: Slot) -> JobFolder | None:
        """The next job for a slot, once there is one; None when all is over."""
        with self._changed:
            while not self._closed:
                spare = any(other is not slot and other.gpu == slot.gpu for other in self.slots)
                if spare and (slot.aside or slot.lost >= FAILURES):
                    remark(f"{slot.where.device} {slot.where.uuid} gets no further job")
                    self.slots.remove(slot)
                    return None
                for job in self._queue:
                    if self._fits(slot, job):
                        self._queue.remove(job)
                        self._running[job.id] = job.job.alone
                        return job
                    if job.job.alone:
                        break  # Nothing overtakes it, or it would wait for ever.
                self._changed.wait()
        return None

    def _fits(self, slot: Slot, job: JobFolder) -> bool:
        """Whether a job may begin now: what has to be alone waits for the others, and the others for it."""
        terms = job.job
        gpu = terms.needs_gpu and any(other.gpu for other in self.slots)
        crowded = any(self._running.values()) or (terms.alone and self._running)
        return slot.gpu == gpu and not crowded

    @contextlib.contextmanager
    def _held(self, slot: Slot) -> Iterator[None]:
        """The lock on a slot's GPU, once nobody else has it; a processor is shared."""
        if not slot.gpu:
            yield
            return
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(locked(self.locks / slot.where.uuid))
                    break
                except Held:
                    time.sleep(0.05)
            yield
