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
from loop.machine.machine import VISIBLE_VARIABLE
from loop.model.record import Where


def check() -> None:
    """Never raises UsageError, as `check` of other executors may: this one needs nothing."""


def slots(width: int) -> list[Slot]:
    """Slots for at most `width` GPUs, and `width` slots for processor jobs."""
    gpus = [device for device in detect_devices(gpu=True) if device.device != "cpu"]
    gpu_slots = list(map(LocalSlot, gpus, split_cores(len(gpus))))
    processor = detect_devices(gpu=False)[0]
    return [*gpu_slots[:width], *(LocalSlot(processor) for _ in range(width))]


def split_cores(count: int) -> list[list[int]]:
    """Split this process's cores into `count` equal lists of core numbers; empty lists if there are
    fewer than two each. Neighbours share a NUMA node with one GPU. Hyperthreads stay together."""
    by_core: list[tuple[int, int]] = []
    for number in os.sched_getaffinity(0):
        # Hyperthreads of a core share the first number of their list of siblings.
        topology = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        by_core.append((int(re.split("[,-]", read_text(topology))[0] or number), number))
    numbers = [number for _, number in sorted(by_core)]
    size = len(numbers) // max(count, 1)
    if size <= 1:
        return [[] for _ in range(count)]
    return [numbers[index * size : (index + 1) * size] for index in range(count)]


class LocalSlot(Slot):
    """A GPU or the processor of this machine. `cores`: numbers its jobs may use; empty: all."""

    def __init__(self, where: Where, cores: Sequence[int] = ()) -> None:
        self.where, self.cores = where, cores  # Core numbers; empty: all, as for a processor.
        self.uuid, self.gpu = where.uuid, where.device != "cpu"  # A processor has an id, too.

    def run_in_slot(self, job: JobFolder) -> None:
        """Run a job on the slot's cores. Locks the GPU: two executors of this user may share it."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)  # Child processes inherit it.
        with contextlib.ExitStack() as stack:
            if self.gpu:
                locks = jobs_folder() / ".slots"
                locks.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(locks / self.uuid, math.inf))
            run_job(job, {VISIBLE_VARIABLE: self.uuid} if self.gpu else {}, self.where)
