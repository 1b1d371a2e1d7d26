"""An actor of a Ray cluster whose jobs are small: it is imported on the nodes."""

import os
import shlex
import time
from pathlib import Path

from loop.jobs import running
from loop.jobs.ray import Supervisor

COMMAND = "LOOP_SMALL_COMMAND"
USED = "used"
"""File in the state folder: seconds of processor time, a line a job."""


class Small(Supervisor):
    """Runs what stands for `loop`."""

    def __init__(self, *, gpu: bool) -> None:
        super().__init__(gpu=gpu)
        running.TIED = tuple(shlex.split(os.environ[COMMAND]))

    def run(self, id_: str, packed: bytes) -> bytes:
        """Notes the processor time that this took the actor."""
        used = time.process_time()
        try:
            return super().run(id_, packed)
        finally:
            with (Path(os.environ["LOOP_STATE"]) / USED).open("a") as notes:
                notes.write(f"{time.process_time() - used}\n")
