"""Controls as answers to a task of another format: files that call its own reference, with a mistake put in."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loop.formats import flashinfer, gpumode, kernelbench
from loop.formats.flashinfer_files import Definition
from loop.formats.json_text import read_json
from loop.formats.model import ForeignTask

ROOT = Path(__file__).parent.parent.parent
"""Where `loop` can be imported from: last of all, so that packages of their interpreter come first."""
HEAD = '''"""Made by loop for an audit: the task's own reference, with a mistake put in."""

import json
import sys

sys.path.append({root!r})
from loop.mistakes import functions

TERMS = json.loads({terms!r})
'''
KERNELBENCH = """

class ModelNew(functions.erring_module({task!r}, "Model", TERMS)):
    pass
"""
GPUMODE = """from reference import ref_kernel

erring = functions.erring(ref_kernel, TERMS)


def custom_kernel(data):
    return erring(data)
"""
SOLUTION = """
{reference}

erring = functions.erring(run, TERMS)


def erring_run(*inputs, **named):
    return erring(*inputs, **named)
"""


def _solution(task: ForeignTask, head: str) -> tuple[str, str]:
    """Ending and text of a solution whose source is `head`: the reference with a mistake."""
    definition, _ = read_json(task.files[0], Definition)
    spec: dict[str, Any] = {"entry_point": "main.py::erring_run", "destination_passing_style": False}
    sol = task.format == flashinfer.SOL
    spec |= {"languages": ["pytorch"], "target_hardware": ["LOCAL"]} if sol else {"language": "python"}
    content = head + SOLUTION.format(reference=definition.reference)
    solution = {
        "name": "control",
        "definition": definition.name,
        "author": "loop",
        "spec": {"target_hardware": ["cuda"], "dependencies": [], **spec},
        "sources": [{"path": "main.py", "content": content}],
    }
    return ".json", json.dumps(solution, indent=2)


ANSWERS: Mapping[str, Callable[[ForeignTask, str], tuple[str, str]]] = {
    kernelbench.NAME: lambda task, head: (".py", head + KERNELBENCH.format(task=str(task.path))),
    gpumode.NAME: lambda task, head: (".py", head + GPUMODE),
    flashinfer.TRACE: _solution,
    flashinfer.SOL: _solution,
}
"""By format: ending and text of an answer, from the task and what stands at its head."""


def answer(task: ForeignTask, terms: Mapping[str, Any]) -> tuple[str, str]:
    """Ending and text of the answer that errs as `terms` says."""
    return ANSWERS[task.format](task, HEAD.format(root=str(ROOT), terms=json.dumps(terms)))
