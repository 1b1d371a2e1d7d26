"""Shared parts of the target that each format makes of a task: fields of target.yaml, and files."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats import python_text
from loop.formats.model import AcceptanceRule, ForeignTask, is_installed
from loop.formats.python_text import Module, file_error

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

    `function`: what an answer has to define. `pattern`: path of a variant's module, by its name.
    """
    variants = {}
    for name, path in answers.items():
        module = python_text.read_module(path)
        if not module.defines(function):
            raise file_error(path, f"`{function}`", "a file without it", hint=f"an answer needs {task.entry}")
        fields = variant_fields(task, pattern.format(name), function, f"the answer {path.name}")
        variants[name] = fields | device_fields(path, [module], [file.stem for file in task.files])
    return variants


def device_fields(path: Path, modules: Iterable[Module], own_modules: Collection[str]) -> dict[str, Any]:
    """`{"device": "cuda"}` if an answer's imports need a GPU, else {}.

    `own_modules`: modules of the task. Raises UsageError for a package that is not installed.
    """
    names = dict.fromkeys(name for module in modules for name in module.needed_packages)
    packages = [name for name in names if name not in own_modules]
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        problem = f"{path}: not judged here: it imports {', '.join(missing)}, which is not installed"
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
