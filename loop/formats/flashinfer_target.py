"""A definition of FlashInfer Trace or SOL-ExecBench as a target; answers are solutions in Python, C++ or CUDA."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats import flashinfer_compiled as compiled
from loop.formats import python_text
from loop.formats.flashinfer import check_sources
from loop.formats.flashinfer_files import (
    Constant,
    Definition,
    ExpressionAxis,
    Solution,
    TraceLine,
    TraceWorkload,
    Variable,
)
from loop.formats.json_text import read_json, read_lines
from loop.formats.model import ForeignTask
from loop.formats.target import ANSWERS, Made, needs, tolerance, unnamed, variant

LANGUAGES = ("python", "triton", "pytorch")
OWN = "theirs"
TYPES = ("float64", "float32", "float16", "bfloat16")
RUN = "run"
HEAD = '''"""Made by loop: {what}, as a target calls it."""

import json
from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
'''
ENTRY = (
    HEAD
    + '''SPECS = json.loads("""{specs}""")
SIZES = json.loads("""{sizes}""")

inputs = {generator}
OUTPUTS = json.loads("""{outputs}""")
expected = foreign.by_position(foreign.from_file(HERE / "reference.py", "run"), list(SPECS), OUTPUTS)
'''
)
AT_RANDOM = "foreign.at_random(SPECS, SIZES)"
CUSTOM = 'foreign.of_axes(foreign.from_file(HERE / "reference.py", "{name}"), list(SPECS))'
ANSWER = (
    HEAD
    + '''INPUTS = json.loads("""{inputs}""")
OUTPUTS = json.loads("""{outputs}""")
SIZES = json.loads("""{sizes}""")

answer = foreign.from_file(HERE / "{file}", "{function}")
run = {run}
'''
)
PASSED = "foreign.returning(answer, INPUTS, OUTPUTS, SIZES)"
RETURNED = "foreign.by_position(answer, list(INPUTS), {name: dtype for name, (_, dtype) in OUTPUTS.items()})"


def target(task: ForeignTask, answers: Mapping[str, Path]) -> Made:
    """The task as a target. Raises LoopError for answers and inputs that loop cannot run."""
    definition, _ = read_json(task.files[0], Definition)
    sizes = _sizes(definition)
    specs = {name: (spec.shape, spec.dtype) for name, spec in definition.inputs.items()}
    entries = [
        entry
        for workload in _workloads(task, definition)
        if (entry := _entry(task, definition, workload)) is not None
    ]
    if not entries:
        raise UsageError(
            f"{task.path}: no workload whose inputs loop can make", f"loop targets inspect {task.path}"
        )
    custom = definition.custom_inputs_entrypoint
    generator = CUSTOM.format(name=custom) if custom else AT_RANDOM
    texts = {
        "reference.py": definition.reference + "\n",
        "entry.py": ENTRY.format(
            what="the task",
            specs=_json(specs),
            sizes=_json(sizes),
            outputs=_json({name: spec.dtype for name, spec in definition.outputs.items()}),
            generator=generator,
        ),
    }
    own = variant(task, "entry.py", "expected", "the task's own reference", "example")
    named: dict[str, Any] = {}
    for name, path in answers.items():
        named[name], files = _answer(task, definition, name, path, entries)
        texts |= files
    scalars = {
        name: {"kind": "flag" if spec.dtype == "bool" else "number"}
        for name, spec in definition.inputs.items()
        if spec.shape is None
    }
    axes = [name for name, axis in definition.axes.items() if not isinstance(axis, ExpressionAxis)]
    fields = {
        "function": "run",
        "signature": {"sizes": axes, "parameters": scalars},
        "generator": {"python": "entry.py:inputs", "passes": "keywords"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        "tolerance": {dtype: tolerance(task.judging, 1e-2) for dtype in TYPES},
        "dtypes": dict.fromkeys(("cpu", "cuda"), _dtype(definition)),
        "workloads": {"task": entries},
        "variants": named or {OWN: own},
    }
    return Made(fields, {}, texts)


def _json(value: Any) -> str:
    """A value for a text in triple quotes."""
    return json.dumps(value).replace("\\", "\\\\")


def _sizes(definition: Definition) -> dict[str, int | str]:
    """Axes that no workload names: constants, and formulas in their order."""
    sizes: dict[str, int | str] = {}
    for name, axis in definition.axes.items():
        if isinstance(axis, Constant):
            sizes[name] = axis.value
        elif isinstance(axis, ExpressionAxis):
            sizes[name] = axis.expression
    return sizes


def _dtype(definition: Definition) -> str:
    """The type whose tolerance counts: the first of floating-point numbers."""
    types = [spec.dtype for spec in (*definition.outputs.values(), *definition.inputs.values())]
    return next((dtype for dtype in types if dtype in TYPES), "float32")


def _workloads(task: ForeignTask, definition: Definition) -> list[TraceWorkload]:
    lines = [path for path in task.files if path.suffix == ".jsonl"]
    if task.path.is_dir():
        return [workload for path in lines for workload, _ in read_lines(path, TraceWorkload)]
    return [
        line.workload
        for path in lines
        for line, _ in read_lines(path, TraceLine)
        if line.definition == definition.name
    ]


def _entry(task: ForeignTask, definition: Definition, workload: TraceWorkload) -> dict[str, Any] | None:
    """A workload as a target writes it; None for one whose inputs lie in files."""
    if any(origin.type == "safetensors" for origin in workload.inputs.values()):
        return None
    constants = {name: axis.value for name, axis in definition.axes.items() if isinstance(axis, Constant)}
    variable = {name: workload.axes[name] for name, axis in definition.axes.items() if isinstance(axis, Variable)}
    scalars = {name: origin.value for name, origin in workload.inputs.items() if origin.type == "scalar"}
    if wrong := unnamed([*constants, *variable, *scalars]):
        raise UsageError(f"{task.path}: {wrong[0]}: loop cannot name such an axis")
    return {**constants, **variable, **scalars}


def _answer(
    task: ForeignTask, definition: Definition, name: str, path: Path, entries: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """A solution as a variant, and its files. Raises LoopError for one that loop cannot run."""
    solution = _solution(definition, path)
    texts = {f"{ANSWERS}/{name}/{source.path}": source.content for source in solution.sources}
    if _languages(solution) & set(compiled.LANGUAGES):
        (unit, text), own = _compiled(definition, name, path, solution, entries)
        return own, {**texts, f"{ANSWERS}/{name}/{unit}": text}
    texts[f"{name}_answer.py"] = _imported(definition, name, solution, _sizes(definition))
    read = [python_text.read_module(path, file.content) for file in solution.sources if file.path.endswith(".py")]
    beside = [Path(source.path).parts[0].removesuffix(".py") for source in solution.sources]
    fields = variant(task, f"{name}_answer.py", RUN, f"the solution {path.name}")
    return fields | needs(path, read, beside), texts


def _imported(definition: Definition, name: str, solution: Solution, sizes: Mapping[str, int | str]) -> str:
    """The module that calls a solution in Python."""
    file, _, function = solution.spec.entry_point.partition("::")
    inputs = {key: spec.shape for key, spec in definition.inputs.items()}
    outputs = {key: (spec.shape or (), spec.dtype) for key, spec in definition.outputs.items()}
    words = {"inputs": _json(inputs), "outputs": _json(outputs), "sizes": _json(sizes), "function": function}
    run = PASSED if solution.spec.destination_passing_style else RETURNED
    return ANSWER.format(what=f"the solution {name}", file=f"{ANSWERS}/{name}/{file}", run=run, **words)


def _compiled(
    definition: Definition, name: str, path: Path, solution: Solution, entries: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, str], dict[str, Any]]:
    """The translation unit that calls a solution in C++ or CUDA, with its name, and the variant."""
    if solution.spec.binding != "torch" and not solution.spec.languages:
        raise UsageError(f"{path}: bound by {solution.spec.binding or 'tvm-ffi'}; loop builds the binding `torch`")
    scalars = {key for key, spec in definition.inputs.items() if spec.shape is None}
    scalar_values = {tuple(entry[key] for key in scalars) for entry in entries}
    if len(scalar_values) > 1:
        raise UsageError(f"{path}: compiled answers are given tensors; {', '.join(scalars)} differs by workload")
    file, folder = solution.spec.entry_point.partition("::")[0], f"{ANSWERS}/{name}"
    unit = f"loop_unit{Path(file).suffix}"
    others = [
        source.path for source in solution.sources if source.path != file and source.path.endswith(compiled.UNITS)
    ]
    fields = {
        "kind": "c_abi",
        "title": f"the solution {path.name}",
        "device": "cuda" if compiled.is_cuda(solution) else "cpu",
        "dtypes": list(TYPES),
        "sources": [f"{folder}/{path}" for path in (unit, *others)],
        "entry": compiled.ENTRY,
        "build": compiled.recipe(solution, folder),
    }
    values = dict(zip(scalars, *scalar_values, strict=True)) if scalars else {}
    return (unit, compiled.unit(definition, solution, file, values)), fields


def _languages(solution: Solution) -> set[str]:
    return set(solution.spec.languages or (solution.spec.language or "",))


def _solution(definition: Definition, path: Path) -> Solution:
    """A solution's file. Raises LoopError for one of another definition or language, or without its entry."""
    solution, _ = read_json(path, Solution)
    if solution.definition != definition.name:
        raise python_text.mistake(path, f"a solution of {definition.name}", f"one of {solution.definition}")
    runs = (*LANGUAGES, *compiled.LANGUAGES)
    if not _languages(solution) <= set(runs):
        written = ", ".join(sorted(_languages(solution)))
        raise UsageError(f"{path}: written in {written}; loop runs solutions in {', '.join(runs)}")
    check_sources(solution, path)
    file, _, function = solution.spec.entry_point.partition("::")
    content = next(source.content for source in solution.sources if source.path == file)
    if _languages(solution) & set(compiled.LANGUAGES):
        return solution
    if not python_text.read_module(path, content).defines(function):
        raise python_text.mistake(path, f"{file} with a function {function}", "no such function")
    return solution
