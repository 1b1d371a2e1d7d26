"""Read tasks of FlashInfer Trace and SOL-ExecBench: definition, workloads and solutions in JSON."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain
from loop.base.errors import DefinitionError
from loop.formats import python_text
from loop.formats.model import ELEMENT_TYPES, AcceptanceRule, Case, ForeignTask, Timing
from loop.formats.python_text import Module, file_error, read_json, read_lines, with_positions
from loop.model.base import Count, Model

Name = Annotated[str, Field(min_length=1)]


class Constant(Model):
    """An axis with a constant size."""

    type: Literal["const"]
    value: Count
    description: str | None = None


class Variable(Model):
    """An axis whose size each workload gives."""

    type: Literal["var"]
    description: str | None = None


class ExpressionAxis(Model):
    """An axis whose size is a formula of other axes; SOL-ExecBench only."""

    type: Literal["expr"]
    expression: Name
    description: str | None = None


class Spec(Model):
    """A tensor with the names of its axes, or a scalar (`shape` None)."""

    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class Definition(Model):
    """The function to compute: axes, inputs, outputs and reference."""

    name: Name
    op_type: str | None = None
    axes: dict[str, Annotated[Constant | Variable | ExpressionAxis, Field(discriminator="type")]]
    inputs: dict[str, Spec]
    """Inputs in the order of the call."""
    outputs: dict[str, Spec]
    reference: Name
    """Python source with a function `run`."""
    description: str | None = None
    tags: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    custom_inputs_entrypoint: str | None = None
    """SOL-ExecBench: name of the reference's function that makes the inputs."""
    hf_id: str | None = None


class InputSource(Model):
    """Where the values of one input come from: a scalar's `value`, or a tensor of a file."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: int | float | bool | None = None
    path: str | None = None
    """File, relative to the root folder."""
    tensor_key: str | None = None


class TraceTolerance(Model):
    """SOL-ExecBench: the tolerance of a workload."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99
    """Share of elements that have to be within the tolerance."""
    max_error_cap: float | None = None
    """Largest absolute error of any element; None: no cap."""
    allow_negative_inf: bool = False


class TraceWorkload(Model):
    """One call: the size of each variable axis, and the source of each input."""

    uuid: Name
    axes: dict[str, Count]
    inputs: dict[str, InputSource]
    tolerance: TraceTolerance = TraceTolerance()


class TraceLine(Model):
    """A line of a FlashInfer Trace: a workload, perhaps with a solution's evaluation on it."""

    definition: str
    workload: TraceWorkload
    solution: str | None = None
    evaluation: dict[str, Any] | None = None


class Source(Model):
    """One file of a solution; `path` is relative to the solution's folder."""

    path: Name
    content: str


class SolutionBuild(Model):
    """How a solution is built and called."""

    language: str | None = None
    """The language, in FlashInfer Trace."""
    languages: tuple[str, ...] = ()
    """The languages, in SOL-ExecBench."""
    target_hardware: tuple[str, ...]
    entry_point: Annotated[str, Field(pattern=r"^[^:]+::[^:]+$")]
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    """Whether outputs are passed as arguments."""
    binding: str | None = None
    """How Python calls compiled code, as in `torch`."""
    compile_options: dict[str, Any] | None = None


class Solution(Model):
    """An answer to a definition."""

    name: Name
    definition: Name
    author: str
    spec: SolutionBuild
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    description: str | None = None

    @property
    def languages(self) -> set[str]:
        """Its languages, in either dialect."""
        return set(self.spec.languages or (self.spec.language or "",))

    @property
    def runs_on_gpu(self) -> bool:
        """Whether compiled code runs on a GPU, by its language or file suffix `.cu`."""
        is_cuda = bool({"cuda", "cuda_cpp"} & self.languages)
        return is_cuda or any(source.path.endswith(".cu") for source in self.sources)


TRACE, SOL = "flashinfer-trace", "sol-execbench"
DEFINITIONS, WORKLOADS, SOLUTIONS = "definitions", "workloads", "solutions"
DEFINITION_FILE, WORKLOAD_FILE = "definition.json", "workload.jsonl"
LANGUAGES = {
    TRACE: ("python", "triton", "cpp", "cuda", "tilelang"),
    SOL: ("pytorch", "triton", "cute_dsl", "cutile", "cudnn_frontend", "cutlass", "cudnn", "cublas", "cuda_cpp"),
}
"""Format to the languages that a solution may use."""
RULE_BY_FORMAT = {
    TRACE: AcceptanceRule(
        atol=1e-2, rtol=1e-2, either=True, note="an evaluation's own settings may differ by kind of operator"
    ),
    SOL: AcceptanceRule(
        atol=1e-2, rtol=1e-2, matched_ratio=0.99, note="10 rounds of fresh inputs; all zeros fail"
    ),
}
TIMING_BY_FORMAT = {
    TRACE: Timing(
        method="CUPTI, 10 calls to warm up, median of 50, mean of 3 trials",
        cold_cache=True,
        fresh_inputs=False,
        checked=False,
        score="speedup: reference's latency over the solution's",
    ),
    SOL: Timing(
        method="CUPTI, 10 calls to warm up, median of 50",
        cold_cache=True,
        fresh_inputs=False,
        checked=False,
        score="1 / (1 + (t - t_sol) / (t_baseline - t_sol)): 0.5 at the baseline, 1 at the hardware's limit",
    ),
}
Workload = tuple[TraceWorkload, Document, int, Path]
"""A workload, its document, its line index and its file."""


def claims_sol(path: Path) -> str | None:
    """Why a path looks like a SOL-ExecBench problem; None if it does not."""
    folder = path.parent if path.name == DEFINITION_FILE else path
    return f"it has a {DEFINITION_FILE}" if (folder / DEFINITION_FILE).is_file() else None


def claims_trace(path: Path) -> str | None:
    """Why a path looks like a FlashInfer Trace definition; None if it does not."""
    is_below = DEFINITIONS in [folder.name for folder in path.parents]
    is_definition = path.suffix == ".json" and path.is_file() and is_below
    return f"it lies below a folder {DEFINITIONS}" if is_definition else None


def find_root(path: Path) -> Path:
    """The root of a definition's trace: the parent of the nearest folder `definitions` above it."""
    return next(folder.parent for folder in path.parents if folder.name == DEFINITIONS)


def find_definitions(path: Path) -> list[Path]:
    """The definition files of a FlashInfer Trace folder; empty without a folder `definitions`."""
    return sorted((path / DEFINITIONS).rglob("*.json")) if (path / DEFINITIONS).is_dir() else []


def load_sol(path: Path, why: str) -> ForeignTask:
    """Read a SOL-ExecBench problem. Raises DefinitionError with the line of a mistake."""
    folder = path.parent if path.name == DEFINITION_FILE else path
    file = folder / WORKLOAD_FILE
    if not file.is_file():
        raise file_error(file, "a file of workloads", "none", hint=f"it belongs beside {DEFINITION_FILE}")
    lines = enumerate(read_lines(file, TraceWorkload))
    workloads = [(workload, document, index, file) for index, (workload, document) in lines]
    solutions = sorted(folder.glob("solution*.json"))
    task = _make_task(SOL, why, folder, folder / DEFINITION_FILE, workloads, solutions, folder)
    tolerances = {workload.tolerance for workload, *_ in workloads}
    if not tolerances:
        return task
    loosest = max(tolerances, key=lambda rule: (rule.max_atol, rule.max_rtol, -rule.required_matched_ratio))
    count_text = f"{len(tolerances)} rules, the loosest shown; " if len(tolerances) > 1 else ""
    rule = AcceptanceRule(
        atol=loosest.max_atol,
        rtol=loosest.max_rtol,
        matched_ratio=loosest.required_matched_ratio,
        cap=loosest.max_error_cap,
        note=count_text + RULE_BY_FORMAT[SOL].note,
    )
    return task.model_copy(update={"judging": rule})


def load_trace(path: Path, why: str) -> ForeignTask:
    """Read a FlashInfer Trace definition and its workloads. Raises DefinitionError."""
    root, name = find_root(path), path.stem
    workloads = []
    for file in sorted((root / WORKLOADS).rglob(f"{name}.jsonl")):
        for index, (line, document) in enumerate(read_lines(file, TraceLine)):
            if line.definition == name:
                workloads.append((line.workload, document, index, file))
    files = sorted((root / SOLUTIONS).rglob("*.json"))
    solutions = [file for file in files if name in file.read_text(errors="replace")]
    return _make_task(TRACE, why, path, path, workloads, solutions, root)


def _make_task(
    dialect: str, why: str, path: Path, file: Path, workloads: list[Workload], solutions: list[Path], root: Path
) -> ForeignTask:
    """Make the task of the definition in `file`, after a check of all its files. Raises DefinitionError.

    `dialect`: SOL or TRACE. `root`: folder that paths of data files start from.
    """
    definition, document = read_json(file, Definition)
    module = _parse_reference(dialect, definition, with_positions(file, document), file)
    hardware: dict[str, None] = {}
    for solution_file in solutions:
        solution, _ = read_json(solution_file, Solution)
        check_sources(solution, solution_file)
        hardware |= dict.fromkeys(solution.spec.target_hardware)
    hints = [] if workloads else ["no workloads: nothing to run"]
    files, data_files, cases = [file], set(), []
    for file_workload in workloads:
        _refuse_misfit(definition, file_workload)
        workload, _, _, workload_file = file_workload
        files.append(workload_file)
        data_files |= {root / origin.path for origin in workload.inputs.values() if origin.path}
        cases.append(Case(name=workload.uuid, use=("check", "time"), arguments=dict(workload.axes)))
        kinds = {origin.type for origin in workload.inputs.values()}
        if "custom" in kinds and (len(kinds) > 1 or not definition.custom_inputs_entrypoint) and not hints:
            mixes = "mixes inputs of its own generator with others"
            hints.append(f"workload {workload.uuid} {mixes}: its evaluator refuses that")
    specs = (*definition.inputs.values(), *definition.outputs.values())
    signature = f"run({', '.join(definition.inputs)}) -> {', '.join(definition.outputs)}"
    needs_cuda = python_text.uses_cuda([module]) or "triton" in module.imported_packages
    return ForeignTask(
        format=dialect,
        why=why,
        name=definition.name,
        path=path,
        files=tuple(dict.fromkeys((*files, *solutions))),
        entry=f"a solution's entry point, called as {signature}",
        languages=LANGUAGES[dialect],
        reference="run() of the definition",
        cases=tuple(cases),
        dtypes=tuple(dict.fromkeys(spec.dtype for spec in specs)),
        judging=RULE_BY_FORMAT[dialect],
        timing=TIMING_BY_FORMAT[dialect],
        imports=module.imported_packages,
        made_for=tuple(hardware),
        devices=("cuda",) if needs_cuda else ("cpu", "cuda"),
        needs_files=tuple(sorted(data_files)),
        hints=tuple(hints),
    )


def _refuse_misfit(definition: Definition, file_workload: Workload) -> None:
    """Raise DefinitionError if a workload names unknown inputs, or lacks the size of a variable axis."""
    workload, document, line, file = file_workload
    unknown = sorted(set(workload.inputs) - set(definition.inputs))
    variable_axes = {name for name, axis in definition.axes.items() if isinstance(axis, Variable)}
    missing = sorted(variable_axes - set(workload.axes))
    if unknown or missing:
        place = with_positions(file, document, line) if file.suffix == ".jsonl" else document
        field = "axes" if missing else "inputs"
        expected = "a size of each variable axis" if missing else "inputs of the definition"
        # A FlashInfer Trace nests the workload in its line.
        keys = ("workload", field) if "workload" in (document.data or {}) else (field,)
        raise DefinitionError([complain(place, keys, expected, ", ".join(missing or unknown))])


def _parse_reference(dialect: str, definition: Definition, document: Document, file: Path) -> Module:
    """Check a definition and parse its reference. Raises DefinitionError for inconsistent names."""
    wrong = []
    for field, specs in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, spec in specs.items():
            if spec.dtype not in ELEMENT_TYPES:
                wrong.append(complain(document, (field, name, "dtype"), "a known element type", repr(spec.dtype)))
            for axis in spec.shape or ():
                if axis not in definition.axes:
                    wrong.append(complain(document, (field, name, "shape"), "axes of the definition", repr(axis)))
    for name in definition.inputs.keys() & definition.outputs.keys():
        wrong.append(complain(document, ("outputs", name), "a name that no input has", repr(name), key=True))
    for name, definition_axis in definition.axes.items():
        if dialect == TRACE and isinstance(definition_axis, ExpressionAxis):
            wrong.append(complain(document, ("axes", name, "type"), "const or var", "expr"))
    if wrong:
        raise DefinitionError(wrong)
    try:
        module = python_text.read_module(file, definition.reference)
    except DefinitionError as error:
        got = f"{error.complaints[0].got} on its line {error.complaints[0].line}"
        raise DefinitionError([complain(document, ("reference",), "Python", got)]) from error
    run, generator = module.find_function("run"), definition.custom_inputs_entrypoint
    if run is None:
        raise DefinitionError([complain(document, ("reference",), "a function `run`", "none")])
    names = [argument.arg for argument in run.args.args]
    if len(names) != len(definition.inputs) and not run.args.vararg:
        expected = f"run({', '.join(definition.inputs)})"
        raise DefinitionError([complain(document, ("reference",), expected, f"run({', '.join(names)})")])
    if generator and module.find_function(generator) is None:
        keys = ("custom_inputs_entrypoint",)
        raise DefinitionError([complain(document, keys, "a function of the reference", repr(generator))])
    return module


def check_sources(solution: Solution, file: Path) -> None:
    """Raise DefinitionError for sources outside the solution's folder, or a missing entry file."""
    paths = [source.path for source in solution.sources]
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise file_error(file, "paths of sources below the solution's own folder", repr(path))
    if solution.spec.entry_point.split("::")[0] not in paths:
        raise file_error(file, f"one of its sources ({', '.join(paths)})", solution.spec.entry_point)
