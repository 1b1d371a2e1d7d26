"""A foreign task and the target that `loop` makes of it, the same for all formats."""

import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from loop.base.errors import UsageError
from loop.formats import python_text
from loop.formats.python_text import Module, file_error
from loop.model.base import Model, Printed
from loop.model.dtypes import ITEM_SIZES

ELEMENT_TYPES = frozenset((*ITEM_SIZES, "float4_e2m1", "float4_e2m1fn_x2"))
"""Element types that tasks may name."""
REFERENCE_VARIANT = "theirs"
"""Name of the variant that stands for a task's own reference, if there are no answers."""
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
        package = f"the Python package {name}, which is not installed"
        reasons.append((not is_installed(name), "dependency", package))
    weights = "pretrained weights from the network; loop downloads nothing"
    reasons.append((task.downloads, "download", weights))
    for path in task.needs_files:
        reasons.append((not path.is_file(), "file", f"{path}, which is not there"))
    return [Hindrance(kind=kind, what=what) for is_missing, kind, what in reasons if is_missing]


WORKLOAD_NAME = re.compile(r"[A-Za-z]\w{0,63}")
GPU_PACKAGES = ("triton", "cupy", "cutlass", "tilelang", "cuda", "pycuda")
"""Packages that run only on a GPU."""
ANSWERS = "answers"
"""Folder of a target that holds links to answers."""


@dataclass(frozen=True)
class TargetDraft:
    """A target, before it is written."""

    fields: Mapping[str, Any]
    """Fields of `target.yaml`, without `format` and `name`."""
    links: Mapping[str, Path]
    """Name in the target's folder to the file that it links to."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name to text of the files that `loop` writes."""


def answer_variants(
    task: ForeignTask, answers: Mapping[str, Path], function: str, pattern: str = ANSWERS + "/{}.py"
) -> dict[str, dict[str, Any]]:
    """Name to fields of a variant for each answer. Raises LoopError for an unusable answer.
    `function`: what an answer has to define. `pattern`: path of a variant's module, by its name."""
    variants = {}
    for name, path in answers.items():
        module = python_text.read_module(path)
        if not module.defines(function):
            raise file_error(path, f"`{function}`", "a file without it", hint=f"an answer needs {task.entry}")
        fields = variant_fields(task, pattern.format(name), function, f"the answer {path.name}")
        variants[name] = fields | device_fields(path, [module], [file.stem for file in task.files])
    return variants


def device_fields(path: Path, modules: Iterable[Module], own_modules: Collection[str]) -> dict[str, Any]:
    """`{"device": "cuda"}` if an answer's imports need a GPU, else {}. `own_modules`: modules of
    the task. Raises UsageError for a package that is not installed."""
    # Only imports at the top: without others a module can be loaded.
    names = [name for module in modules for name in python_text.list_imports(module.tree.body)]
    packages = [name for name in dict.fromkeys(names) if name not in own_modules]
    missing_packages = [name for name in packages if not is_installed(name)]
    if missing_packages:
        problem = f"{path}: not judged here: it imports {', '.join(missing_packages)}, which is not installed"
        raise UsageError(problem, hint="an answer is one file; install what it needs beside loop's torch")
    return {"device": "cuda"} if set(GPU_PACKAGES) & set(packages) else {}


def variant_fields(
    task: ForeignTask, module: str, function: str, title: str, role: str = "main"
) -> dict[str, Any]:
    """The fields of one Python variant in target.yaml."""
    device = "any" if "cpu" in task.devices else "cuda"
    fields = {"kind": "python", "title": title, "role": role, "device": device}
    return {**fields, "module": module, "function": function}


def tolerance_fields(rule: AcceptanceRule, default: float) -> dict[str, Any]:
    """The `tolerance` of target.yaml by a task's rule; `default`: atol and rtol that it leaves open."""
    atol = default if rule.atol is None else rule.atol
    rtol = default if rule.rtol is None else rule.rtol
    cap = {} if rule.cap is None else {"cap": rule.cap}
    return {"atol": atol, "rtol": rtol, "matched": rule.matched_ratio, **cap}


def find_unnameable(names: Sequence[str]) -> list[str]:
    """The names that are not allowed in a workload."""
    return [name for name in names if not WORKLOAD_NAME.fullmatch(name)]
