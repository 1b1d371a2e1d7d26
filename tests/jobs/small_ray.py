"""A task of a Ray cluster whose job is small: it is imported on the nodes."""

import os
import shlex

from loop.jobs import executor, ray

COMMAND = "LOOP_SMALL_COMMAND"


def run_small(version: str, id_: str, packed: bytes, *, gpu: bool) -> bytes:
    """Run the small program in loop's place."""
    executor.COMMAND_DYING_WITH_PARENT = tuple(shlex.split(os.environ[COMMAND]))
    return ray.run_on_node(version, id_, packed, gpu=gpu)
