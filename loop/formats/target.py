"""What adapters make: the fields of a target of format 2, and the files that belong beside it."""

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
"""Packages with which an answer runs on a GPU alone."""
ANSWERS = "answers"
"""Folder of the links to answers."""


@dataclass(frozen=True)
class TargetDraft:
    """A target, before it is written."""

    fields: Mapping[str, Any]
    """Of `target.yaml`, without format and name."""
    links: Mapping[str, Path]
    """Name in the target's folder to the file it stands for."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name to text, of files that loop writes."""


def variants(
    task: ForeignTask, answers: Mapping[str, Path], function: str, called: str = ANSWERS + "/{}.py"
) -> dict[str, dict[str, Any]]:
    """Each answer as a variant; `called`: its module. Raises LoopError for one that cannot be judged here."""
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
    """The device of an answer that a GPU alone can run, by its imports; `own`: modules that the task brings.

    Raises UsageError for a package that is not installed: nothing is known of such an answer here.
    """
    names = dict.fromkeys(name for module in modules for name in module.needed if name not in set(own))
    if missing := [name for name in names if not installed(name)]:
        what = f"not judged here: it imports {', '.join(missing)}, which is not installed"
        raise UsageError(
            f"{path}: {what}", hint="an answer is one file; install what it needs beside loop's torch"
        )
    return {"device": "cuda"} if set(ON_GPU) & set(names) else {}


def variant(task: ForeignTask, module: str, function: str, title: str, role: str = "main") -> dict[str, Any]:
    """One variant in Python."""
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
    """What an element may be off, as a target says it."""
    atol = default if judging.atol is None else judging.atol
    rtol = default if judging.rtol is None else judging.rtol
    cap = {} if judging.cap is None else {"cap": judging.cap}
    return {"atol": atol, "rtol": rtol, "matched": judging.matched_ratio, **cap}


def unnameable(names: Sequence[str]) -> list[str]:
    """Names that a workload cannot have."""
    return [name for name in names if not NAMES.fullmatch(name)]
