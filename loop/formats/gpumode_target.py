"""A task of GPU MODE as a target: the generator takes a case, functions take all of what it makes as one argument.

Many tasks pass the output among the inputs, as an empty tensor. A case of ours leaves it out, and each call gets a
fresh one: it is no input, and a call that writes to it changes none.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats import python_text
from loop.formats.model import Case, ForeignTask
from loop.formats.python_text import Module
from loop.formats.target import ANSWERS, Made, tolerance, unnamed, variant, variants

GENERATE, CHECK, REFERENCE, KERNEL = "generate_input", "check_implementation", "ref_kernel", "custom_kernel"
OWN = "theirs"
LOOSE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-2}
"""What an element may be off where the task has a checker of its own."""
SEEDS = 10_000
"""As many seeds at least, so that a fresh one is not known before."""
TESTS = "tests"
"""Cases that are only checked: mostly smaller ones."""
SETS = {"benchmarks": "time", TESTS: "check"}
ENTRY = '''"""Made by loop: the functions of the task, as a target calls them."""

import reference

from loop.workers import foreign

inputs = foreign.without_buffers(foreign.within_seeds(reference.{generate}, {seeds}), {places})
expected = foreign.with_buffers(reference.{reference})
check = foreign.with_buffers(reference.{check})
'''
ANSWER = '''"""Made by loop: the answer {name}, as a target calls it."""

from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
{kernel} = foreign.with_buffers(foreign.from_file(HERE / "{file}", "{kernel}"))
'''


def target(task: ForeignTask, answers: Mapping[str, Path]) -> Made:
    """The task as a target. Raises UsageError for cases that a target cannot name."""
    reference = python_text.read_module(next(path for path in task.files if path.name == "reference.py"))
    if reference.function(REFERENCE) is None:
        raise UsageError(f"{reference.path}: no {REFERENCE}: only its own evaluator can judge this task")
    entries = {  # `benchmarks` are timed, `tests` only checked.
        name: [
            _entry(task, case)
            for case in task.cases
            if use in case.use and (name == "benchmarks" or "time" not in case.use)
        ]
        for name, use in SETS.items()
    }
    own = variant(task, "entry.py", "expected", "the task's own reference", "example")
    fields = {
        "function": "kernel",
        "signature": _signature(task),
        "generator": {"python": "entry.py:inputs", "passes": "one"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        **(
            {"checker": {"python": "entry.py:check", "given": ["inputs", "outputs"]}}
            if task.judging.checker
            else {}
        ),
        "tolerance": {dtype: tolerance(task.judging, default) for dtype, default in LOOSE.items()},
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {name: entry for name, entry in entries.items() if entry},
        "variants": variants(task, answers, KERNEL, "{}_answer.py") or {OWN: own},
    }
    stated = [case.arguments.get("seed") for case in task.cases]
    words = {
        "generate": GENERATE,
        # The end of the range that seeds are drawn from: the task's own lie in it.
        "seeds": max(SEEDS, *(seed + 1 for seed in stated if isinstance(seed, int)), 0),
        "places": _buffers(reference),
        "reference": REFERENCE,
        "check": CHECK,
    }
    texts = {"entry.py": ENTRY.format(**words)}
    links = {path.name: path for path in task.files if path.suffix == ".py" and path.name != "submission.py"}
    for name, path in answers.items():
        links[f"{ANSWERS}/{name}.py"] = path
        texts[f"{name}_answer.py"] = ANSWER.format(name=name, file=f"{ANSWERS}/{name}.py", kernel=KERNEL)
    return Made(fields, links, texts)


def _signature(task: ForeignTask) -> dict[str, Any]:
    """Sizes and parameters of the generator; tensors are those that it makes."""
    kinds = _kinds(task)
    return {
        "sizes": [name for name, kind in kinds.items() if kind == "size"],
        "parameters": {name: {"kind": kind} for name, kind in kinds.items() if kind != "size"},
    }


def _entry(task: ForeignTask, case: Case) -> dict[str, Any]:
    """A case as a workload: without its seed, which loop chooses."""
    sizes = {name: value for name, value in case.arguments.items() if name != "seed"}
    lists = [name for name, value in sizes.items() if isinstance(value, list | tuple)]
    wrong = [*lists, *unnamed(list(sizes))]
    if wrong:
        raise UsageError(
            f"{task.path}: case {case.name}: {wrong[0]} is no number, word or flag: loop cannot name such a case",
            hint="its own evaluator can judge it",
        )
    return sizes


def _kinds(task: ForeignTask) -> dict[str, str]:
    """Each argument of the generator: a size, or a kind of parameter."""
    kinds: dict[str, str] = {}
    for case in task.cases:
        for name, value in case.arguments.items():
            kind = next(kind for types, kind in KINDS if isinstance(value, types))
            kinds[name] = kind if kinds.get(name, kind) == kind else "number"
    kinds.pop("seed", None)
    return kinds


KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "flag"),
    (int, "size"),
    (float, "number"),
    (str, "text"),
    ((list, tuple), "text"),
)


def _buffers(reference: Module) -> tuple[int, ...]:
    """Places of the generator's tuple where it returns a tensor that it made empty and did not touch."""
    generate = reference.function(GENERATE)
    last = generate.body[-1] if generate else None
    if generate is None or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        return ()
    empty = set(_empty(generate))
    named = [element.id if isinstance(element, ast.Name) else "" for element in last.value.elts]
    return tuple(place for place, name in enumerate(named) if name in empty)


def _empty(generate: ast.FunctionDef) -> Iterator[str]:
    """Names that are given an empty tensor, and are not mentioned again before the return."""
    names = [node.id for line in generate.body[:-1] for node in ast.walk(line) if isinstance(node, ast.Name)]
    for node in generate.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if names.count(name) == 1 and _makes_empty(node.value):
                yield name


def _makes_empty(node: ast.expr) -> bool:
    """`torch.empty(...)` or `torch.empty_like(...)`, perhaps made contiguous."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "contiguous":
        return _makes_empty(node.func.value)
    return node.func.attr in ("empty", "empty_like")
