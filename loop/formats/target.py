"""What adapters make: the fields of a target of format 2, and the files that belong beside it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.formats import python_text
from loop.formats.model import ForeignTask, Judging

NAMES = re.compile(r"[A-Za-z]\w{0,63}")
ANSWERS = "answers"
"""Folder of the links to answers."""


@dataclass(frozen=True)
class Made:
    """A target, before it is written."""

    fields: Mapping[str, Any]
    """Of `target.yaml`, without format and name."""
    links: Mapping[str, Path]
    """Name in the target's folder to the file it stands for."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name to text, of files that loop writes."""


def variants(task: ForeignTask, answers: Mapping[str, Path], function: str) -> dict[str, dict[str, Any]]:
    """Each answer as a variant. Raises DefinitionError for one that does not define the function."""
    found = {}
    for name, path in answers.items():
        if not python_text.read_module(path).defines(function):
            raise python_text.mistake(
                path, f"`{function}`", "a file without it", hint=f"an answer needs {task.entry}"
            )
        found[name] = variant(task, f"{ANSWERS}/{name}.py", function, f"the answer {path.name}")
    return found


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


def tolerance(judging: Judging, default: float) -> dict[str, Any]:
    """What an element may be off, as a target says it."""
    atol = default if judging.atol is None else judging.atol
    rtol = default if judging.rtol is None else judging.rtol
    cap = {} if judging.cap is None else {"cap": judging.cap}
    return {"atol": atol, "rtol": rtol, "matched": judging.matched_ratio, **cap}


def unnamed(names: Sequence[str]) -> list[str]:
    """Names that a workload cannot have."""
    return [name for name in names if not NAMES.fullmatch(name)]
