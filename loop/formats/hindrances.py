"""What a task needs and this machine has not: a GPU, several, a package, memory, data, the network."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loop.formats.model import Case, ForeignTask, Hindrance, least_bytes

SHOWN = 3


@dataclass(frozen=True)
class Here:
    """What this machine has."""

    gpus: tuple[str, ...]
    """Names of the GPUs that can be used."""
    memory: int
    """Bytes that a new process may use."""
    installed: Callable[[str], bool]
    """Whether a package can be imported."""


def installed(name: str) -> bool:
    """Whether a package is there. It is looked up, not imported."""
    if name in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def hindrances(task: ForeignTask, here: Here) -> list[Hindrance]:
    """What stands in the way of our verdict on this machine."""
    return [*_machine(task, here), *_missing(task, here), *_memory(task, here)]


def _machine(task: ForeignTask, here: Here) -> Iterator[Hindrance]:
    if task.own_contract:
        what = "inputs and checks that loop knows: its judging program has its own"
        yield Hindrance(kind="contract", what=what)
    if task.devices == ("cuda",) and not here.gpus:
        yield Hindrance(kind="cuda", what="its code asks for a CUDA device; there is none here")
    if task.gpus > 1:
        there = f"{len(here.gpus)} here" if here.gpus else "none here"
        yield Hindrance(kind="several GPUs", what=f"{task.gpus} GPUs, {there}; loop runs tasks of one GPU")


def _missing(task: ForeignTask, here: Here) -> Iterator[Hindrance]:
    for name in task.imports:
        if not here.installed(name):
            yield Hindrance(kind="dependency", what=f"the Python package {name}, which is not installed")
    if task.downloads:
        yield Hindrance(kind="download", what="pretrained weights from the network; loop downloads nothing")
    for path in task.needs_files:
        if not path.is_file():
            yield Hindrance(kind="file", what=f"{path}, which is not there")


def _memory(task: ForeignTask, here: Here) -> Iterator[Hindrance]:
    """Cases whose inputs alone, in both types, are more than there is room for."""
    large = [case for case in task.cases if least_bytes(case) > here.memory]
    if large:
        most = max(map(least_bytes, large))
        free = f"{here.memory / 1e9:.1f} GB are free"
        what = f"at least {most / 1e9:.1f} GB for inputs and their float64 copies; {free}"
        whole = len(large) == len(task.cases)
        yield Hindrance(kind="memory", what=what, cases=None if whole else tuple(case.name for case in large))


def runs(task: ForeignTask, needs: list[Hindrance]) -> tuple[Case, ...]:
    """The cases that nothing stands in the way of."""
    if any(need.cases is None for need in needs):
        return ()
    hindered = {name for need in needs for name in need.cases or ()}
    return tuple(case for case in task.cases if case.name not in hindered)
