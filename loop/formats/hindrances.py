"""What a task needs and this machine has not: a GPU, several, a package, data, the network."""

import importlib.util
import sys
from collections.abc import Iterator

from loop.formats.model import ForeignTask, Hindrance


def installed(name: str) -> bool:
    """Whether a package is there. It is looked up, not imported."""
    if name in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def hindrances(task: ForeignTask, gpus: int) -> list[Hindrance]:
    """What stands in the way of our verdict where so many GPUs can be used: nothing of the task runs then."""
    return [*_machine(task, gpus), *_missing(task)]


def _machine(task: ForeignTask, gpus: int) -> Iterator[Hindrance]:
    if task.own_contract:
        what = "inputs and checks that loop knows: its judging program has its own"
        yield Hindrance(kind="contract", what=what)
    if task.devices == ("cuda",) and not gpus:
        yield Hindrance(kind="cuda", what="its code asks for a CUDA device; there is none here")
    if task.gpus > 1:
        there = f"{gpus} here" if gpus else "none here"
        yield Hindrance(kind="several GPUs", what=f"{task.gpus} GPUs, {there}; loop runs tasks of one GPU")


def _missing(task: ForeignTask) -> Iterator[Hindrance]:
    for name in task.imports:
        if not installed(name):
            yield Hindrance(kind="dependency", what=f"the Python package {name}, which is not installed")
    if task.downloads:
        yield Hindrance(kind="download", what="pretrained weights from the network; loop downloads nothing")
    for path in task.needs_files:
        if not path.is_file():
            yield Hindrance(kind="file", what=f"{path}, which is not there")
