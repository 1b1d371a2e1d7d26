"""An actor of a Ray cluster whose jobs are small: it is imported on the nodes."""

import os
import shlex

from loop.jobs import running
from loop.jobs.ray import Supervisor

COMMAND = "LOOP_SMALL_COMMAND"


class Small(Supervisor):
    """Runs what stands for `loop`."""

    def __init__(self, *, gpu: bool) -> None:
        super().__init__(gpu=gpu)
        running.TIED = tuple(shlex.split(os.environ[COMMAND]))
