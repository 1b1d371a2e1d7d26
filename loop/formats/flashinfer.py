"""FlashInfer Trace and SOL-ExecBench, two dialects: a definition in JSON, workloads in JSON lines, solutions."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain
from loop.base.errors import DefinitionError
from loop.formats import python_text
from loop.formats.model import ELEMENT_TYPES, Case, ForeignTask, Judging, Timing
from loop.formats.python_text import Module, located, read_json, read_lines
from loop.model.base import Count, Model

Name = Annotated[str, Field(min_length=1)]


class Constant(Model):
    """An axis of one size."""

    type: Literal["const"]
    """One size."""
    value: Count
    """Which."""
    description: str | None = None
    """What it is."""


class Variable(Model):
    """An axis that each workload gives a size."""

    type: Literal["var"]
    """Given by the workload."""
    description: str | None = None
    """What it is."""


class ExpressionAxis(Model):
    """An axis whose size follows from others; SOL-ExecBench only."""

    type: Literal["expr"]
    """Worked out."""
    expression: Name
    """From what."""
    description: str | None = None
    """What it is."""


class Spec(Model):
    """One tensor, or a scalar."""

    shape: tuple[str, ...] | None
    """Its axes; None for a scalar."""
    dtype: str
    """Its element type."""
    description: str | None = None
    """What it is."""


class Definition(Model):
    """What is computed."""

    name: Name
    """Its name."""
    op_type: str | None = None
    """Its family."""
    axes: dict[str, Annotated[Constant | Variable | ExpressionAxis, Field(discriminator="type")]]
    """Axis to size."""
    inputs: dict[str, Spec]
    """Inputs, in the order of the call."""
    outputs: dict[str, Spec]
    """Outputs, in the order of the call."""
    reference: Name
    """Source of a function `run`."""
    description: str | None = None
    """What it is."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    constraints: tuple[str, ...] = ()
    """What sizes have to fulfil."""
    custom_inputs_entrypoint: str | None = None
    """SOL-ExecBench: a function of the reference that makes the inputs."""
    hf_id: str | None = None
    """SOL-ExecBench: where it was published."""


class InputSource(Model):
    """Where the values of one input come from."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    """How they are made."""
    value: int | float | bool | None = None
    """A scalar's."""
    path: str | None = None
    """The file that holds them, relative to the root."""
    tensor_key: str | None = None
    """Which of its tensors."""


class TraceTolerance(Model):
    """SOL-ExecBench: what a workload allows."""

    max_atol: float = 1e-2
    """Absolute error."""
    max_rtol: float = 1e-2
    """Relative error."""
    required_matched_ratio: float = 0.99
    """Share of elements within both."""
    max_error_cap: float | None = None
    """No absolute error may exceed this."""
    allow_negative_inf: bool = False
    """Whether minus infinity may match minus infinity."""


class TraceWorkload(Model):
    """One call."""

    uuid: Name
    """Its name."""
    axes: dict[str, Count]
    """Axis to size."""
    inputs: dict[str, InputSource]
    """Input to where its values come from."""
    tolerance: TraceTolerance = TraceTolerance()
    """What it allows."""


class TraceLine(Model):
    """A line of a FlashInfer Trace: a workload, and perhaps what was measured on it."""

    definition: str
    """Name of the definition."""
    workload: TraceWorkload
    """The call."""
    solution: str | None = None
    """Name of the solution, in a trace."""
    evaluation: dict[str, Any] | None = None
    """What was measured, in a trace."""


class Source(Model):
    """One file of a solution."""

    path: Name
    """Relative to the folder that it is unpacked into."""
    content: str
    """Its text."""


class SolutionBuild(Model):
    """How a solution is built and called."""

    language: str | None = None
    """FlashInfer: what it is written in."""
    languages: tuple[str, ...] = ()
    """SOL-ExecBench: the same."""
    target_hardware: tuple[str, ...]
    """GPUs it is made for."""
    entry_point: Annotated[str, Field(pattern=r"^[^:]+::[^:]+$")]
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    """Libraries that it needs."""
    destination_passing_style: bool = True
    """Whether it is given its outputs as arguments."""
    binding: str | None = None
    """How compiled code is called."""
    compile_options: dict[str, Any] | None = None
    """SOL-ExecBench: flags."""


class Solution(Model):
    """An answer."""

    name: Name
    """Its name."""
    definition: Name
    """What it answers."""
    author: str
    """Who wrote it."""
    spec: SolutionBuild
    """How it is built and called."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    """Its files."""
    description: str | None = None
    """Its idea."""


TRACE, SOL = "flashinfer-trace", "sol-execbench"
DEFINITIONS, WORKLOADS, SOLUTIONS = "definitions", "workloads", "solutions"
DEFINITION, LINES = "definition.json", "workload.jsonl"


@dataclass(frozen=True)
class Dialect:
    """What one of the two formats does in its own way."""

    name: str
    languages: tuple[str, ...]
    judging: Judging
    timing: Timing


DIALECTS = {
    TRACE: Dialect(
        TRACE,
        ("python", "triton", "cpp", "cuda", "tilelang"),
        Judging(
            atol=1e-2, rtol=1e-2, either=True, note="an evaluation's own settings may differ by kind of operator"
        ),
        Timing(
            method="CUPTI, 10 calls to warm up, median of 50, mean of 3 trials",
            cold_cache=True,
            fresh_inputs=False,
            checked=False,
            score="speedup: reference's latency over the solution's",
        ),
    ),
    SOL: Dialect(
        SOL,
        ("pytorch", "triton", "cute_dsl", "cutile", "cudnn_frontend", "cutlass", "cudnn", "cublas", "cuda_cpp"),
        Judging(atol=1e-2, rtol=1e-2, matched_ratio=0.99, note="10 rounds of fresh inputs; all zeros fail"),
        Timing(
            method="CUPTI, 10 calls to warm up, median of 50",
            cold_cache=True,
            fresh_inputs=False,
            checked=False,
            score="1 / (1 + (t - t_sol) / (t_baseline - t_sol)): 0.5 at the baseline, 1 at the hardware's limit",
        ),
    ),
}


def claims_sol(path: Path) -> str | None:
    """Why a path looks like a problem of SOL-ExecBench."""
    folder = path.parent if path.name == DEFINITION else path
    return f"it has a {DEFINITION}" if (folder / DEFINITION).is_file() else None


def claims_trace(path: Path) -> str | None:
    """Why a path looks like a definition of a FlashInfer Trace."""
    if path.suffix == ".json" and path.is_file() and _root(path):
        return f"it lies below a folder {DEFINITIONS}"
    return None


def definitions(path: Path) -> list[Path]:
    """The definitions of a FlashInfer Trace's folder."""
    return sorted((path / DEFINITIONS).rglob("*.json")) if (path / DEFINITIONS).is_dir() else []


def load_sol(path: Path, why: str) -> ForeignTask:
    """Read a problem of SOL-ExecBench. Raises DefinitionError with the line of what is wrong or missing."""
    folder = path.parent if path.name == DEFINITION else path
    lines = folder / LINES
    if not lines.is_file():
        raise python_text.mistake(lines, "a file of workloads", "none", hint=f"it belongs beside {DEFINITION}")
    loaded = list(read_lines(lines, TraceWorkload))
    solutions = sorted(folder.glob("solution*.json"))
    workloads = [(workload, document, index, lines) for index, (workload, document) in enumerate(loaded)]
    return _task(DIALECTS[SOL], why, folder, folder / DEFINITION, workloads, solutions, folder)


def load_trace(path: Path, why: str) -> ForeignTask:
    """Read one definition with its workloads. Raises DefinitionError with the line of what is wrong or missing."""
    root = _root(path)
    assert root is not None
    name = path.stem
    files = sorted((root / WORKLOADS).rglob(f"{name}.jsonl"))
    loaded = [
        (line.workload, document, index, file)
        for file in files
        for index, (line, document) in enumerate(read_lines(file, TraceLine))
        if line.definition == name
    ]
    solutions = sorted(
        path for path in (root / SOLUTIONS).rglob("*.json") if name in path.read_text(errors="replace")
    )
    return _task(DIALECTS[TRACE], why, path, path, loaded, solutions, root)


def root_of(path: Path) -> Path:
    """The folder of the trace that a definition belongs to."""
    root = _root(path)
    assert root is not None
    return root


def _root(path: Path) -> Path | None:
    """The folder above `definitions`."""
    return next((folder.parent for folder in path.parents if folder.name == DEFINITIONS), None)


def _task(
    dialect: Dialect,
    why: str,
    path: Path,
    file: Path,
    loaded: list[tuple[TraceWorkload, Document, int, Path]],
    solutions: list[Path],
    root: Path,
) -> ForeignTask:
    definition, document = read_json(file, Definition)
    _check(dialect, definition, document, file)
    module = _reference(definition, document, file)
    answers = [read_json(path, Solution)[0] for path in solutions]
    for file_of_answer, answer in zip(solutions, answers, strict=True):
        check_sources(answer, file_of_answer)
    cases = tuple(_case(definition, *workload) for workload in loaded)
    data = {root / origin.path for workload, *_ in loaded for origin in workload.inputs.values() if origin.path}
    specs = (*definition.inputs.values(), *definition.outputs.values())
    called = f"run({', '.join(definition.inputs)}) -> {', '.join(definition.outputs)}"
    hardware = dict.fromkeys(itertools.chain.from_iterable(answer.spec.target_hardware for answer in answers))
    return ForeignTask(
        format=dialect.name,
        why=why,
        name=definition.name,
        path=path,
        files=tuple(dict.fromkeys((file, *(lines for *_, lines in loaded), *solutions))),
        entry=f"a solution's entry point, called as {called}",
        languages=dialect.languages,
        reference="run() of the definition",
        cases=cases,
        dtypes=tuple(dict.fromkeys(spec.dtype for spec in specs)),
        judging=_judging(dialect, [workload for workload, *_ in loaded]),
        timing=dialect.timing,
        imports=module.imports,
        made_for=tuple(hardware),
        devices=("cuda",) if python_text.wants_cuda([module]) or "triton" in module.imports else ("cpu", "cuda"),
        needs_files=tuple(sorted(data)),
        hints=tuple(_hints(definition, loaded)),
    )


def _check(dialect: Dialect, definition: Definition, document: Document, file: Path) -> None:
    """Raise DefinitionError for names that do not fit each other."""
    document = located(file, document)
    wrong = []
    for field in ("inputs", "outputs"):
        for name, spec in getattr(definition, field).items():
            if spec.dtype not in ELEMENT_TYPES:
                wrong.append(complain(document, (field, name, "dtype"), "a known element type", repr(spec.dtype)))
            for axis in (word for word in spec.shape or () if word not in definition.axes):
                wrong.append(complain(document, (field, name, "shape"), "axes of the definition", repr(axis)))
    for name in definition.inputs.keys() & definition.outputs.keys():
        wrong.append(complain(document, ("outputs", name), "a name that no input has", repr(name), key=True))
    for name, axis in definition.axes.items():
        if dialect.name == TRACE and isinstance(axis, ExpressionAxis):
            wrong.append(complain(document, ("axes", name, "type"), "const or var", "expr"))
    if wrong:
        raise DefinitionError(wrong)


def _reference(definition: Definition, document: Document, file: Path) -> Module:
    """The reference, parsed. Its lines are counted from the line of the definition that holds it."""
    place = located(file, document)
    try:
        module = python_text.read_module(file, definition.reference)
    except DefinitionError as error:
        got = f"{error.complaints[0].got} on its line {error.complaints[0].line}"
        raise DefinitionError([complain(place, ("reference",), "Python", got)]) from error
    run = module.function("run")
    if run is None:
        raise DefinitionError([complain(place, ("reference",), "a function `run`", "none")])
    names = [argument.arg for argument in run.args.args]
    if len(names) != len(definition.inputs) and not run.args.vararg:
        expected = f"run({', '.join(definition.inputs)})"
        raise DefinitionError([complain(place, ("reference",), expected, f"run({', '.join(names)})")])
    custom = definition.custom_inputs_entrypoint
    if custom and module.function(custom) is None:
        where = ("custom_inputs_entrypoint",)
        raise DefinitionError([complain(place, where, "a function of the reference", repr(custom))])
    return module


def check_sources(answer: Solution, file: Path) -> None:
    """Raise DefinitionError for sources that point elsewhere, and for an entry in none of them."""
    paths = [source.path for source in answer.sources]
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise python_text.mistake(file, "paths of sources below the solution's own folder", repr(path))
    if answer.spec.entry_point.split("::")[0] not in paths:
        raise python_text.mistake(file, f"one of its sources ({', '.join(paths)})", answer.spec.entry_point)


def _case(definition: Definition, workload: TraceWorkload, document: Document, index: int, file: Path) -> Case:
    """A workload as a case. Raises DefinitionError where axes or inputs do not fit."""
    variable = {name for name, axis in definition.axes.items() if isinstance(axis, Variable)}
    required = set(definition.inputs)
    if variable - set(workload.axes) or set(workload.inputs) - required:
        place = located(file, document, index) if file.suffix == ".jsonl" else document
        missing = ", ".join(sorted(variable - set(workload.axes) or set(workload.inputs) - required))
        expected = "a size of each variable axis" if variable - set(workload.axes) else "inputs of the definition"
        field = "axes" if variable - set(workload.axes) else "inputs"
        nested = (field,) if "workload" not in (document.data or {}) else ("workload", field)
        raise DefinitionError([complain(place, nested, expected, missing)])
    return Case(name=workload.uuid, use=("check", "time"), arguments=dict(workload.axes))


def _judging(dialect: Dialect, workloads: list[TraceWorkload]) -> Judging:
    """The dialect's rule; in SOL-ExecBench the loosest that a workload asks for."""
    if dialect.name == TRACE or not workloads:
        return dialect.judging
    kinds = {workload.tolerance for workload in workloads}
    loosest = max(
        kinds, key=lambda tolerance: (tolerance.max_atol, tolerance.max_rtol, -tolerance.required_matched_ratio)
    )
    several = f"{len(kinds)} rules, the loosest shown; " if len(kinds) > 1 else ""
    return dialect.judging.model_copy(
        update={
            "atol": loosest.max_atol,
            "rtol": loosest.max_rtol,
            "matched_ratio": loosest.required_matched_ratio,
            "cap": loosest.max_error_cap,
            "note": several + dialect.judging.note,
        }
    )


def _hints(definition: Definition, loaded: list[tuple[TraceWorkload, Document, int, Path]]) -> Iterator[str]:
    if not loaded:
        yield "no workloads: nothing to run"
    for workload, *_ in loaded:
        kinds = {origin.type for origin in workload.inputs.values()}
        if "custom" in kinds and (len(kinds) > 1 or not definition.custom_inputs_entrypoint):
            mixes = "mixes inputs of its own generator with others"
            yield f"workload {workload.uuid} {mixes}: its evaluator refuses that"
            return
