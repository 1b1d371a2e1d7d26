"""What a task of somebody else's says, in one form for all formats."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from loop.model.base import Model, Printed

FLOATS = ("float64", "float32", "float16", "bfloat16")
ELEMENT_TYPES = frozenset(
    (
        *(*FLOATS, "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "float4_e2m1fn_x2"),
        *("int8", "uint8", "bool", "int64", "int32", "int16"),
    )
)
"""Element types that tasks name."""
Obstacle = Literal["cuda", "several GPUs", "dependency", "file", "download", "contract"]


class Case(Model):
    """One call that the task makes."""

    name: str
    """As the task writes it, or its number."""
    use: tuple[Literal["check", "time"], ...]
    """What the format does with it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What its generator is given, or the sizes of its axes."""


class AcceptanceRule(Model):
    """When an output counts as right."""

    atol: float | None = None
    """Absolute error; None where the task has a checker of its own."""
    rtol: float | None = None
    """Relative error."""
    matched_ratio: float = 1.0
    """Share of elements that have to be within both."""
    cap: float | None = None
    """No element's absolute error may exceed this."""
    either: bool = False
    """An element is wrong only if it is beyond `atol` and beyond `rtol`; else beyond their sum."""
    checker: str | None = None
    """The task's own checker, where it has one."""
    note: str = ""
    """What else the format does."""


class Timing(Model):
    """How the format times an answer."""

    method: str
    """Clock, calls before and calls that count."""
    cold_cache: bool | None
    """Whether the L2 cache is cleared before each call; None: unknown."""
    fresh_inputs: bool | None
    """Whether timed calls get fresh inputs; None: unknown."""
    checked: bool | None
    """Whether outputs of timed calls are checked; None: unknown."""
    score: str
    """What the format makes of it."""


class Hindrance(Model):
    """Something that a task needs and that is not there."""

    kind: Obstacle
    """What is missing."""
    what: str
    """Which, in words."""


class ForeignTask(Model):
    """One task of somebody else's, as its files say it."""

    format: str
    """Name of the format in the table."""
    why: str
    """By what it was recognised."""
    name: str
    """What the task is called."""
    path: Path
    """Its file or folder."""
    files: tuple[Path, ...]
    """Every file that was read."""
    entry: str
    """What an answer has to define."""
    languages: tuple[str, ...]
    """What an answer may be written in."""
    reference: str
    """Where the right answer comes from."""
    cases: tuple[Case, ...]
    """The calls it makes."""
    dtypes: tuple[str, ...]
    """Element types of inputs and outputs; empty where only the generator knows them."""
    judging: AcceptanceRule
    """When an output counts as right."""
    timing: Timing
    """How the format times an answer."""
    imports: tuple[str, ...] = ()
    """Packages that its files import."""
    made_for: tuple[str, ...] = ()
    """Hardware that the task names."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Where its code can run."""
    gpus: int = 1
    """GPUs that it needs where it runs on GPUs."""
    downloads: bool = False
    """Whether its code fetches weights from the network."""
    own_contract: bool = False
    """Whether its judging program makes inputs and checks outputs in a way of its own."""
    needs_files: tuple[Path, ...] = ()
    """Data files that cases name."""
    hints: tuple[str, ...] = ()
    """What is odd about the task, by its text alone."""


class Inspected(Printed, ForeignTask):
    """A task, and what of it runs on this machine: what `loop targets inspect` prints."""

    runs: tuple[str, ...]
    """Cases that run here: all, or none."""
    hindrances: tuple[Hindrance, ...]
    """What stands in the way of them."""


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
    there = f"{gpus} here" if gpus else "none here"
    reasons: list[tuple[bool, Obstacle, str]] = [
        (task.own_contract, "contract", "inputs and checks that loop knows: its judging program has its own"),
        (task.devices == ("cuda",) and not gpus, "cuda", "its code asks for a CUDA device; there is none here"),
        (task.gpus > 1, "several GPUs", f"{task.gpus} GPUs, {there}; loop runs tasks of one GPU"),
    ]
    for name in task.imports:
        what = f"the Python package {name}, which is not installed"
        reasons.append((not installed(name), "dependency", what))
    what = "pretrained weights from the network; loop downloads nothing"
    reasons.append((task.downloads, "download", what))
    reasons += [(not path.is_file(), "file", f"{path}, which is not there") for path in task.needs_files]
    return [Hindrance(kind=kind, what=what) for is_missing, kind, what in reasons if is_missing]
