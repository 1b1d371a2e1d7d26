"""Shared parts of the target that each format makes of a task: fields of target.yaml, and files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats import python_text
from loop.formats.model import AcceptanceRule, ForeignTask, installed
from loop.formats.python_text import Module

NAMES = re.compile(r"[A-Za-z]\w{0,63}")
ON_GPU = ("triton", "cupy", "cutlass", "tilelang", "cuda", "pycuda")
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


def variants(
    task: ForeignTask, answers: Mapping[str, Path], function: str, called: str = ANSWERS + "/{}.py"
) -> dict[str, dict[str, Any]]:
    """Answers as variants; `called`: pattern of the module. LoopError for an unusable answer."""
    variants_made = {}
    for name, path in answers.items():
        module = python_text.read_module(path)
        if not module.defines(function):
            raise python_text.mistake(
                path, f"`{function}`", "a file without it", hint=f"an answer needs {task.entry}"
            )
        own = [file.stem for file in task.files]
        variants_made[name] = variant(task, called.format(name), function, f"the answer {path.name}")
        variants_made[name] |= device_needs(path, [module], own)
    return variants_made


def device_needs(path: Path, modules: Iterable[Module], own: Iterable[str]) -> dict[str, Any]:
    """`{"device": "cuda"}` if an answer's imports need a GPU, else {}; `own`: modules of the task.

    Raises UsageError for a package that is not installed, because the answer cannot be judged then.
    """
    names = dict.fromkeys(name for module in modules for name in module.needed if name not in set(own))
    if missing := [name for name in names if not installed(name)]:
        what = f"not judged here: it imports {', '.join(missing)}, which is not installed"
        raise UsageError(
            f"{path}: {what}", hint="an answer is one file; install what it needs beside loop's torch"
        )
    return {"device": "cuda"} if set(ON_GPU) & set(names) else {}


def variant(task: ForeignTask, module: str, function: str, title: str, role: str = "main") -> dict[str, Any]:
    """The fields of one Python variant in target.yaml."""
    device = "any" if "cpu" in task.devices else "cuda"
    return {
        "kind": "python",
        "title": title,
        "role": role,
        "device": device,
        "module": module,
        "function": function,
    }


def tolerance(judging: AcceptanceRule, default: float) -> dict[str, Any]:
    """The tolerance of target.yaml for an acceptance rule; `default`: if the rule states none."""
    atol = default if judging.atol is None else judging.atol
    rtol = default if judging.rtol is None else judging.rtol
    cap = {} if judging.cap is None else {"cap": judging.cap}
    return {"atol": atol, "rtol": rtol, "matched": judging.matched_ratio, **cap}


def unnameable(names: Sequence[str]) -> list[str]:
    """The names that are not allowed in a workload."""
    return [name for name in names if not NAMES.fullmatch(name)]
