"""Data model of a foreign task, the same for all formats."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from loop.model.base import Model, Printed

FLOATS = ("float64", "float32", "float16", "bfloat16")
ELEMENT_TYPES = frozenset(
    (
        *(*FLOATS, "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "float4_e2m1fn_x2"),
        *("int8", "uint8", "bool", "int64", "int32", "int16"),
    )
)
"""Element types that tasks may name."""
Obstacle = Literal["cuda", "several GPUs", "dependency", "file", "download", "contract"]


class TaskFile(Model):
    """Content of a task's file. Fields that `loop` does not need are ignored: other projects add some."""

    model_config = ConfigDict(extra="ignore")


class Case(Model):
    """One call that the task makes."""

    name: str
    """Name in the task, or a number."""
    use: tuple[Literal["check", "time"], ...]
    """Whether the format checks the call, times it, or both."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its generator, or the sizes of its axes."""


class AcceptanceRule(Model):
    """When an output counts as right."""

    atol: float | None = None
    """Allowed absolute error; None if the task has its own checker."""
    rtol: float | None = None
    """Allowed relative error; None if the task has its own checker."""
    matched_ratio: float = 1.0
    """Share of elements that have to be within the tolerance."""
    cap: float | None = None
    """Largest absolute error of any element; None: no cap."""
    either: bool = False
    """True: an error may reach the larger of `atol` and `rtol` x |expected|; False: their sum."""
    checker: str | None = None
    """Name of the task's own checker; None without one."""
    note: str = ""


class Timing(Model):
    """How the format times an answer."""

    method: str
    """Clock, warm-up calls and timed calls."""
    cold_cache: bool | None
    """Whether the L2 cache is cleared before each call; None: unknown."""
    fresh_inputs: bool | None
    """Whether timed calls get fresh inputs; None: unknown."""
    checked: bool | None
    """Whether outputs of timed calls are checked; None: unknown."""
    score: str
    """How the format computes a score from the times."""


class Hindrance(Model):
    """Something that a task needs and this machine lacks."""

    kind: Obstacle
    what: str


class ForeignTask(Model):
    """One task of another project, as read from its files."""

    format: str
    """Name of the format in the table."""
    why: str
    """How the format was recognised."""
    name: str
    """What the task is called."""
    path: Path
    files: tuple[Path, ...]
    """Every file that was read."""
    entry: str
    """What an answer has to define."""
    languages: tuple[str, ...]
    reference: str
    """The function that computes the right output."""
    cases: tuple[Case, ...]
    """The calls that the task makes."""
    dtypes: tuple[str, ...]
    """Element types of inputs and outputs; empty where only the generator knows them."""
    judging: AcceptanceRule
    timing: Timing
    imports: tuple[str, ...] = ()
    made_for: tuple[str, ...] = ()
    """Hardware that the task names."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Where its code can run."""
    gpus: int = 1
    """GPUs that it needs where it runs on GPUs."""
    downloads: bool = False
    """Whether its code fetches weights from the network."""
    own_contract: bool = False
    """Whether its judging program makes inputs and checks outputs in a way unknown to `loop`."""
    needs_files: tuple[Path, ...] = ()
    """Data files that cases name."""
    hints: tuple[str, ...] = ()
    """Peculiarities found in the task's text."""


class Inspected(Printed, ForeignTask):
    """A task and whether it runs on this machine: the output of `loop targets inspect`."""

    runs: tuple[str, ...]
    """Cases that run here: all, or none."""
    hindrances: tuple[Hindrance, ...]
    """Why the cases cannot run; empty if they can."""


def is_installed(name: str) -> bool:
    """Whether a package is installed. It is looked up, not imported."""
    if name in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def find_hindrances(task: ForeignTask, gpus: int) -> list[Hindrance]:
    """Why `loop` cannot judge a task on `gpus` usable GPUs; empty if it can."""
    gpus_text = f"{gpus} here" if gpus else "none here"
    reasons: list[tuple[bool, Obstacle, str]] = [
        (task.own_contract, "contract", "inputs and checks that loop knows: its judging program has its own"),
        (task.devices == ("cuda",) and not gpus, "cuda", "its code asks for a CUDA device; there is none here"),
        (task.gpus > 1, "several GPUs", f"{task.gpus} GPUs, {gpus_text}; loop runs tasks of one GPU"),
    ]
    for name in task.imports:
        what = f"the Python package {name}, which is not installed"
        reasons.append((not is_installed(name), "dependency", what))
    what = "pretrained weights from the network; loop downloads nothing"
    reasons.append((task.downloads, "download", what))
    reasons += [(not path.is_file(), "file", f"{path}, which is not there") for path in task.needs_files]
    return [Hindrance(kind=kind, what=what) for is_missing, kind, what in reasons if is_missing]
