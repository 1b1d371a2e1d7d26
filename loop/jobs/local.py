"""The executor `local`: one job at a time on each GPU here, and processor jobs next to them."""

import contextlib
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

from loop.base.locks import locked
from loop.jobs.executor import Slot, run_job
from loop.jobs.folder import JobFolder, detect_devices, jobs_folder, read_text
from loop.machine.gpus import VISIBLE
from loop.model.jobs import Where


def check() -> None:
    """Never fails: this executor needs nothing."""


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs, and `width` slots for processor jobs."""
    gpus = [place for place in detect_devices(gpu=True) if place.device != "cpu"]
    shares = zip(gpus, split_cores(len(gpus)), strict=True)
    processors = [LocalSlot(detect_devices(gpu=False)[0]) for _ in range(width)]
    return [*[LocalSlot(place, cores) for place, cores in shares][:width], *processors]


def split_cores(count: int) -> list[list[int]]:
    """Split this process's cores into `count` equal lists of numbers; empty if there are too few.

    Neighbouring cores share a NUMA node with one GPU. Hyperthreads of a core stay together.
    """

    def core(number: int) -> tuple[int, int]:
        siblings = read_text(Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"))
        return int(re.split("[,-]", siblings)[0] or number), number

    numbers = sorted(os.sched_getaffinity(0), key=core)
    size = len(numbers) // max(count, 1)
    return [numbers[first * size : (first + 1) * size] if size > 1 else [] for first in range(count)]


class LocalSlot(Slot):
    """A GPU or the processor of this machine. `cores`: numbers its jobs may use; empty: all."""

    def __init__(self, where: Where, cores: Sequence[int] = (), locks: Path | None = None) -> None:
        self.where, self.cores = where, cores
        self.uuid, self.gpu = where.uuid, where.device != "cpu"
        self.locks = locks or jobs_folder() / ".slots"

    def run_in_slot(self, job: JobFolder) -> None:
        """Run a job. Holds a lock on the GPU, because two executors may share the machine."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)  # Child processes inherit it.
        with contextlib.ExitStack() as stack:
            if self.gpu:
                self.locks.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.locks / self.uuid, math.inf))
            run_job(job, {VISIBLE: self.uuid} if self.gpu else {}, self.where)
