"""The executor `local`: one job at a time on each GPU of this machine, and jobs for processors beside them."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from loop.base.locks import Held, locked
from loop.jobs.executor import Slot, run
from loop.jobs.folder import JobFolder, devices, jobs_folder
from loop.machine.gpus import VISIBLE
from loop.model.jobs import Where


def check() -> None:
    """It needs nothing."""


def slots(width: int) -> list[Slot]:
    """`width` GPUs at most, and as many jobs for processors beside them."""
    places = [place for place in devices(gpu=True) if place.device != "cpu"][:width]
    gpus = [LocalSlot(place, {VISIBLE: place.uuid}) for place in places]
    return [*gpus, *(LocalSlot(devices(gpu=False)[0], {}) for _ in range(width))]


class LocalSlot(Slot):
    """A GPU or a processor of this machine. `variables`: environment by which a command knows its GPU."""

    def __init__(self, where: Where, variables: Mapping[str, str], locks: Path | None = None) -> None:
        self.where, self.variables = where, variables
        self.uuid, self.gpu = where.uuid, where.device != "cpu"
        self.locks = locks or jobs_folder() / ".slots"

    def do(self, job: JobFolder) -> None:
        """Run it, while holding the lock on the GPU: two executors share a machine."""
        with self._held():
            run(job, self.variables, self.where)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        if not self.gpu:
            yield
            return
        self.locks.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(locked(self.locks / self.uuid))
                    break
                except Held:
                    time.sleep(0.05)
            yield
