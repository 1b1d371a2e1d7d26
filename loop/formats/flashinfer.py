"""FlashInfer Trace and SOL-ExecBench: definition, workloads and solutions in JSON; target files."""

import importlib.util
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain
from loop.base.errors import DefinitionError, UsageError
from loop.formats import model
from loop.formats.model import Case, ForeignTask, Module, file_error, read_json, read_text
from loop.model.base import Count
from loop.model.dtypes import FLOATS

Name = Annotated[str, Field(min_length=1)]


class Axis(model.TaskFile):
    """An axis: `const` has a value, workloads set `var`, `expr` is a formula (in SOL-ExecBench)."""

    type: Literal["const", "var", "expr"]
    value: Count | None = None
    expression: Name | None = None


class Argument(model.TaskFile):
    """An input or output: a tensor with the names of its axes, or a scalar (`shape` None)."""

    shape: tuple[str, ...] | None
    dtype: str


class Definition(model.TaskFile):
    """The function to compute: axes, inputs, outputs and reference."""

    name: Name
    axes: dict[str, Axis]
    inputs: dict[str, Argument]  # Inputs in the order of the call.
    outputs: dict[str, Argument]
    reference: Name  # Python source with a function `run`.
    custom_inputs_entrypoint: str | None = None
    """SOL-ExecBench: name of the reference's function that makes the inputs."""


class InputSource(model.TaskFile):
    """Where the values of one input come from: a scalar's `value`, or a tensor of a file."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    value: int | float | bool | None = None
    path: str | None = None


class TraceTolerance(model.TaskFile):
    """SOL-ExecBench: the tolerance of a workload."""

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99  # Share of elements that have to be within the tolerance.
    max_error_cap: float | None = None  # Largest absolute error of any element; None: no cap.


class TraceWorkload(model.TaskFile):
    """One call: the size of each variable axis, and the source of each input."""

    uuid: Name
    axes: dict[str, Count]
    inputs: dict[str, InputSource]
    tolerance: TraceTolerance = TraceTolerance()


class TraceLine(model.TaskFile):
    """A line of a FlashInfer Trace."""

    definition: str
    workload: TraceWorkload


class Source(model.TaskFile):
    """One file of a solution; `path` is relative to the solution's folder."""

    path: Name
    content: str


class SolutionBuild(model.TaskFile):
    """How a solution is built and called."""

    language: str | None = None  # The language, in FlashInfer Trace.
    languages: tuple[str, ...] = ()  # The languages, in SOL-ExecBench.
    target_hardware: tuple[str, ...]
    entry_point: Annotated[str, Field(pattern=r"^[^:]+::[^:]+$")]  # `file::function`.
    destination_passing_style: bool = True
    binding: str | None = None  # How Python calls compiled code, as in `torch`.
    compile_options: dict[str, Any] | None = None


class Solution(model.TaskFile):
    """An answer to a definition."""

    name: Name
    definition: Name
    spec: SolutionBuild
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @property
    def languages(self) -> set[str]:
        """Its languages, in either dialect."""
        return set(self.spec.languages or (self.spec.language or "",))


TRACE, SOL = "flashinfer-trace", "sol-execbench"
DEFINITIONS, WORKLOADS, SOLUTIONS = "definitions", "workloads", "solutions"
DEFINITION_FILE, WORKLOAD_FILE = "definition.json", "workload.jsonl"
LANGUAGES = {
    TRACE: ("python", "triton", "cpp", "cuda", "tilelang"),
    SOL: (
        "pytorch", "triton", "cute_dsl", "cutile", "cudnn_frontend", "cutlass", "cudnn", "cublas",
        "cuda_cpp",
    ),
}  # fmt: skip
"""Format to the languages that a solution may use."""
RULE_BY_FORMAT = {
    TRACE: model.AcceptanceRule(
        atol=1e-2, rtol=1e-2, either=True, note="an evaluation may set others by kind of operator"
    ),
    SOL: model.AcceptanceRule(
        atol=1e-2, rtol=1e-2, matched_ratio=0.99, note="10 rounds of fresh inputs; all zeros fail"
    ),
}
UNCHECKED = {"cold_cache": True, "fresh_inputs": False, "checked": False}
TIMING_BY_FORMAT = {
    TRACE: model.Timing(
        method="CUPTI, 10 calls to warm up, median of 50, mean of 3 trials",
        score="speedup: reference's latency over the solution's",
        **UNCHECKED,
    ),
    SOL: model.Timing(
        method="CUPTI, 10 calls to warm up, median of 50",
        score="1 / (1 + (t - t_sol) / (t_baseline - t_sol)): 0.5 at the baseline, 1 at the limit",
        **UNCHECKED,
    ),
}
Workload = tuple[TraceWorkload, Document, Path]  # A workload, its document and its file.


def claims(dialect: str, path: Path) -> str | None:
    """Why a path looks like a task of `dialect`, TRACE or SOL; None if it does not."""
    if dialect == SOL:
        folder = path.parent if path.name == DEFINITION_FILE else path
        return f"it has a {DEFINITION_FILE}" if (folder / DEFINITION_FILE).is_file() else None
    is_below = DEFINITIONS in [folder.name for folder in path.parents]
    is_definition = path.suffix == ".json" and path.is_file() and is_below
    return f"it lies below a folder {DEFINITIONS}" if is_definition else None


def find_root(path: Path) -> Path:
    """The root of a definition's trace: the parent of the nearest folder `definitions` above it."""
    return next(folder.parent for folder in path.parents if folder.name == DEFINITIONS)


def _read_workloads(dialect: str, path: Path) -> list[Workload]:
    """The workloads of a task. `path`: the folder of a SOL-ExecBench definition (DefinitionError if
    it has no file of workloads), or a FlashInfer Trace's definition, whose stem is its name."""
    if dialect == SOL:
        files = [path / WORKLOAD_FILE]
        if not files[0].is_file():
            hint = f"it belongs beside {DEFINITION_FILE}"
            raise file_error(files[0], "a file of workloads", "none", hint=hint)
    else:
        files = sorted((find_root(path) / WORKLOADS).rglob(f"{path.stem}.jsonl"))
    workloads = []
    for file in files:
        for lines_above, text in enumerate(read_text(file).split("\n")):
            if text.strip() and dialect == SOL:
                workloads.append((*read_json(file, TraceWorkload, text, lines_above), file))
            elif text.strip():
                line, document = read_json(file, TraceLine, text, lines_above)
                if line.definition == path.stem:
                    workloads.append((line.workload, document, file))
    return workloads


def load(dialect: str, path: Path) -> ForeignTask:
    """Read a task of `dialect`, TRACE or SOL, and check its files. The loosest tolerance of a
    SOL-ExecBench problem counts for all workloads. Raises DefinitionError with a mistake's line."""
    is_sol = dialect == SOL
    if is_sol:
        path = path.parent if path.name == DEFINITION_FILE else path
        file, root, solutions = path / DEFINITION_FILE, path, sorted(path.glob("solution*.json"))
    else:
        file, root = path, find_root(path)
        solutions = sorted((root / SOLUTIONS).rglob("*.json"))
        solutions = [other for other in solutions if path.stem in other.read_text(errors="replace")]
    workloads = _read_workloads(dialect, path)
    definition, document = read_json(file, Definition)
    module = _read_reference(dialect, definition, document, file)
    hardware: dict[str, None] = {}
    for solution_file in solutions:
        solution, _ = read_json(solution_file, Solution)
        check_sources(solution, solution_file)
        hardware |= dict.fromkeys(solution.spec.target_hardware)
    files, data_files, cases = [file], set(), []
    variable_axes = {name for name, axis in definition.axes.items() if axis.type == "var"}
    for workload, workload_document, workload_file in workloads:
        unknown_inputs = sorted(set(workload.inputs) - set(definition.inputs))
        missing_axes = sorted(variable_axes - set(workload.axes))
        if unknown_inputs or missing_axes:
            field = "axes" if missing_axes else "inputs"
            expected = "a size of each var axis" if missing_axes else "inputs of the definition"
            keys = (field,) if is_sol else ("workload", field)
            got = ", ".join(missing_axes or unknown_inputs)
            raise DefinitionError([complain(workload_document, keys, expected, got)])
        files.append(workload_file)
        data_files |= {root / origin.path for origin in workload.inputs.values() if origin.path}
        cases.append(Case(name=workload.uuid, use=("check", "time"), arguments=dict(workload.axes)))
    rule = RULE_BY_FORMAT[dialect]
    rules = {workload.tolerance for workload, *_ in workloads} if is_sol else set()
    if rules:  # A workload that states no tolerance has the default.
        loosest = max(
            rules, key=lambda each: (each.max_atol, each.max_rtol, -each.required_matched_ratio)
        )
        note = f"{len(rules)} rules, judged by the loosest; " if len(rules) > 1 else ""
        rule = model.AcceptanceRule(
            atol=loosest.max_atol,
            rtol=loosest.max_rtol,
            matched_ratio=loosest.required_matched_ratio,
            cap=loosest.max_error_cap,
            note=note + rule.note,
        )
    arguments = (*definition.inputs.values(), *definition.outputs.values())
    signature = f"run({', '.join(definition.inputs)}) -> {', '.join(definition.outputs)}"
    needs_cuda = model.uses_cuda([module]) or "triton" in module.imported_packages
    return ForeignTask(
        format=dialect,
        name=definition.name,
        path=path,
        files=tuple(dict.fromkeys((*files, *solutions))),
        entry=f"a solution's entry point, called as {signature}",
        languages=LANGUAGES[dialect],
        reference="run() of the definition",
        cases=tuple(cases),
        dtypes=tuple(dict.fromkeys(argument.dtype for argument in arguments)),
        judging=rule,
        timing=TIMING_BY_FORMAT[dialect],
        imports=module.imported_packages,
        made_for=tuple(hardware),
        devices=("cuda",) if needs_cuda else ("cpu", "cuda"),
        needs_files=tuple(sorted(data_files)),
        hints=() if workloads else ("no workloads: nothing to run",),
    )


def _read_reference(dialect: str, definition: Definition, document: Document, file: Path) -> Module:
    """Check a definition, and parse its reference. Raises DefinitionError for unknown types,
    inconsistent names, and a reference without a `run` of these inputs or the named generator."""
    complaints = []
    for field, arguments in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, argument in arguments.items():
            if argument.dtype not in model.ELEMENT_TYPES:
                keys = (field, name, "dtype")
                complaints.append(complain(document, keys, "a known type", repr(argument.dtype)))
            for axis in argument.shape or ():
                if axis not in definition.axes:
                    keys = (field, name, "shape")
                    complaints.append(complain(document, keys, "one of `axes`", repr(axis)))
    for name in definition.inputs.keys() & definition.outputs.keys():
        expected = "a name that no input has"  # `key`: point to the name, not its value.
        complaints.append(complain(document, ("outputs", name), expected, repr(name), key=True))
    for name, definition_axis in definition.axes.items():
        if dialect == TRACE and definition_axis.type == "expr":
            complaints.append(complain(document, ("axes", name, "type"), "const or var", "expr"))
        needed = {"const": "value", "expr": "expression"}.get(definition_axis.type)
        if needed and getattr(definition_axis, needed) is None:
            complaints.append(complain(document, ("axes", name), f"a field `{needed}`", "none"))
    if complaints:
        raise DefinitionError(complaints)
    try:
        module = model.read_module(file, definition.reference)
    except DefinitionError as error:
        got = f"{error.complaints[0].got} on its line {error.complaints[0].line}"
        raise DefinitionError([complain(document, ("reference",), "Python", got)]) from error
    run, generator = module.find_function("run"), definition.custom_inputs_entrypoint
    if run is None:
        raise DefinitionError([complain(document, ("reference",), "a function `run`", "none")])
    names = [argument.arg for argument in run.args.args]
    if len(names) != len(definition.inputs) and not run.args.vararg:
        expected, got = f"run({', '.join(definition.inputs)})", f"run({', '.join(names)})"
        raise DefinitionError([complain(document, ("reference",), expected, got)])
    if generator and module.find_function(generator) is None:
        field, expected = "custom_inputs_entrypoint", "a function of the reference"
        raise DefinitionError([complain(document, (field,), expected, repr(generator))])
    return module


def check_sources(solution: Solution, file: Path) -> None:
    """Raise DefinitionError for sources outside the solution's folder, or a missing entry file."""
    paths = [source.path for source in solution.sources]
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise file_error(file, "paths of sources below the solution's own folder", repr(path))
    if solution.spec.entry_point.split("::")[0] not in paths:
        raise file_error(file, f"one of its files ({', '.join(paths)})", solution.spec.entry_point)


COMPILED_LANGUAGES = ("cpp", "cuda", "cuda_cpp")
UNIT_SUFFIXES = (".cpp", ".cc", ".cxx", ".cu")
COMPILED_ENTRY = "loop_answer"
UNIT_TEMPLATE = """// Made by loop: the solution {name} behind the C interface.
#include "loop_kernel.h"

#include <exception>
#include <string>
#include <tuple>
#include <vector>

#include <torch/extension.h>
{cuda}
#include "{source}"

namespace loop_made {{
using Values = std::vector<at::Tensor>;
thread_local std::string message;

at::Tensor of(const LoopTensor &tensor) {{
  static const at::ScalarType types[] = {{
      at::ScalarType::Undefined, at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt,
      at::kLong, at::kByte, at::kChar, at::kShort, at::kBool, at::kFloat8_e4m3fn,
      at::kFloat8_e5m2}};
  auto options = at::TensorOptions().dtype(types[tensor.dtype]).device({device});
  size_t rank = tensor.rank;
  return at::from_blob(tensor.data, {{tensor.sizes, rank}}, {{tensor.strides, rank}}, options);
}}

void keep(LoopTensor *outputs, const Values &values) {{
  TORCH_CHECK(values.size() == {count}, "it returned ", values.size(), " outputs, not {count}");
  for (const auto &value : values) {{
    const at::Tensor output = of(*outputs++);
    TORCH_CHECK(value.scalar_type() == output.scalar_type() && value.sizes() == output.sizes(),
                "it returned ", value.scalar_type(), " ", value.sizes(), " instead of ",
                output.scalar_type(), " ", output.sizes());
    output.copy_(value);
  }}
}}
void keep(LoopTensor *outputs, const at::Tensor &value) {{ keep(outputs, Values{{value}}); }}
template <class... Tensors> void keep(LoopTensor *outputs, const std::tuple<Tensors...> &values) {{
  std::apply([&](const auto &...each) {{ keep(outputs, Values{{each...}}); }}, values);
}}
}}  // namespace loop_made

LOOP_EXPORT __attribute__((weak)) const char *loop_error(int) {{
  return loop_made::message.c_str();
}}

LOOP_EXPORT int {entry}(const LoopTensor *inputs, LoopTensor *outputs, const double *,
                        void *stream) {{
  try {{
    at::NoGradGuard no_gradients;
    {guard}
{tensors}
    {call};
    return 0;
  }} catch (const c10::Error &error) {{
    loop_made::message = error.what_without_backtrace();
  }} catch (const std::exception &error) {{
    loop_made::message = error.what();
  }}
  return 1;
}}
"""
CUDA_HEADERS = "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n"
GUARD = "c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromExternal((cudaStream_t)stream, 0));"


def build_recipe(solution: Solution, folder: str, *, is_cuda: bool) -> dict[str, Any]:
    """The build recipe of a solution in C++ (g++) or CUDA (nvcc): torch's headers and libraries,
    and its own options. `folder`: the solution's, in the target. UsageError without torch."""
    spec = importlib.util.find_spec("torch")
    torch = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
    if not (torch / "include/torch/extension.h").is_file():
        raise UsageError("a solution in C++ or CUDA needs torch's headers, which are not installed")
    include, library_folder = torch / "include", torch / "lib"
    python_include = sysconfig.get_paths()["include"]
    headers = (folder, include, include / "torch/csrc/api/include", python_include)
    common = ["-std=c++20", *(f"-I{path}" for path in headers), "-DTORCH_EXTENSION_NAME=loop_unit"]
    libraries = [f"-L{library_folder}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    options = solution.spec.compile_options or {}
    own_link_flags = [str(option) for option in options.get("ld_flags", ())]
    if not is_cuda:
        flags = ["-O3", *common, *map(str, options.get("cflags", ()))]
        flags += ["-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{library_folder}"]
        return {"compiler": "g++", "flags": [*flags, *own_link_flags]}
    flags = [*map(str, options.get("cuda_cflags", ("-O3", "--use_fast_math"))), "-arch={arch}"]
    flags += [*common, "--expt-relaxed-constexpr", "-Xlinker", "--no-as-needed", *libraries]
    flags += ["-lc10_cuda", "-ltorch_cuda", "-Xlinker", f"-rpath,{library_folder}"]
    return {"compiler": "nvcc", "flags": [*flags, *own_link_flags]}


PYTHON_LANGUAGES = ("python", "triton", "pytorch")
HEAD = '''"""Made by loop: {what}, as a target calls it."""

from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
'''
ENTRY_TEXT = HEAD
ENTRY_TEXT += """REFERENCE = HERE / "reference.py"
SPECS = {specs!r}
SIZES = {sizes!r}
OUTPUTS = {outputs!r}

inputs = {generator}
expected = foreign.pass_by_position(foreign.import_function(REFERENCE, "run"), list(SPECS), OUTPUTS)
"""
RANDOM = "foreign.make_random_generator(SPECS, SIZES)"
CUSTOM = 'foreign.adapt_axes_generator(foreign.import_function(REFERENCE, "{name}"), list(SPECS))'
ANSWER_TEXT = HEAD
ANSWER_TEXT += """INPUTS = {inputs!r}
OUTPUTS = {outputs!r}
SIZES = {sizes!r}

answer = foreign.import_function(HERE / "{file}", "{function}")
run = {run}
"""
RUN_PASSING = "foreign.return_outputs(answer, INPUTS, OUTPUTS, SIZES)"
RUN_RETURNING = "foreign.pass_by_position(answer, list(INPUTS), OUTPUTS)"


def make_target(task: ForeignTask, answers: Mapping[str, Path]) -> model.TargetDraft:
    """Make a target of the task and answers (name to file), or its reference. Raises LoopError."""
    definition, _ = read_json(task.files[0], Definition)
    sizes: Axes = {}
    for name, axis in definition.axes.items():
        if axis.type != "var":
            sizes[name] = (axis.expression if axis.type == "expr" else axis.value) or 0
    entries = _workload_entries(task, definition)
    generator = definition.custom_inputs_entrypoint
    values = {
        "what": "the task",
        "specs": {name: (each.shape, each.dtype) for name, each in definition.inputs.items()},
        "sizes": sizes,
        "outputs": {name: each.dtype for name, each in definition.outputs.items()},
        "generator": CUSTOM.format(name=generator) if generator else RANDOM,
    }
    texts = {"reference.py": definition.reference + "\n", "entry.py": ENTRY_TEXT.format(**values)}
    variants: dict[str, Any] = {}
    for name, path in answers.items():
        variants[name], answer_texts = _answer_variant(task, definition, name, path, entries, sizes)
        texts |= answer_texts
    if not variants:
        variants[model.REFERENCE_VARIANT] = model.variant_fields(task, "entry.py", "expected")
    scalars = {}
    for name, argument in definition.inputs.items():
        if argument.shape is None:
            scalars[name] = {"kind": "flag" if argument.dtype == "bool" else "number"}
    axes = [name for name, axis in definition.axes.items() if axis.type != "expr"]
    types = [each.dtype for each in (*definition.outputs.values(), *definition.inputs.values())]
    # The type whose tolerance counts.
    dtype = next((dtype for dtype in types if dtype in FLOATS), "float32")
    fields = {
        "function": "run",
        "signature": {"sizes": axes, "parameters": scalars},
        "generator": {"python": "entry.py:inputs", "passes": "keywords"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        "tolerance": model.tolerance_fields(task.judging, dict.fromkeys(FLOATS, 1e-2)),
        "dtypes": dict.fromkeys(("cpu", "cuda"), dtype),
        "workloads": {"task": entries},
        "variants": variants,
    }
    return model.TargetDraft(fields, {}, texts)


Axes = dict[str, int | str]  # Axes that no workload sets, to a constant or a formula, in order.
Entries = Sequence[Mapping[str, Any]]  # Workloads of target.yaml: axes and scalars to values.


def _workload_entries(task: ForeignTask, definition: Definition) -> list[dict[str, Any]]:
    """Workloads of target.yaml without inputs in files. Raises UsageError for none or bad names."""
    constants = {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    variable_axes = [name for name, axis in definition.axes.items() if axis.type == "var"]
    entries = []
    for workload, *_ in _read_workloads(task.format, task.path):
        if not any(source.type == "safetensors" for source in workload.inputs.values()):
            sizes = {name: workload.axes[name] for name in variable_axes}
            entry: dict[str, Any] = {**constants, **sizes}
            for name, source in workload.inputs.items():
                entry |= {name: source.value} if source.type == "scalar" else {}
            for name in entry:
                if not model.WORKLOAD_NAME.fullmatch(name):
                    raise UsageError(f"{task.path}: {name}: loop cannot name such an axis")
            entries.append(entry)
    if not entries:
        why = "no workload whose inputs loop can make"
        raise UsageError(f"{task.path}: {why}", f"loop targets inspect {task.path}")
    return entries


def _answer_variant(
    task: ForeignTask, definition: Definition, name: str, path: Path, entries: Entries, sizes: Axes
) -> tuple[dict[str, Any], dict[str, str]]:
    """A solution as a variant `name`, and its files (name to text). `entries`: the workloads.
    Raises LoopError if it cannot run: definition, language or entry do not fit."""
    solution, _ = read_json(path, Solution)
    if solution.definition != definition.name:
        raise file_error(path, f"a solution of {definition.name}", f"one of {solution.definition}")
    runnable = (*PYTHON_LANGUAGES, *COMPILED_LANGUAGES)
    if not solution.languages <= set(runnable):
        written = ", ".join(sorted(solution.languages))
        raise UsageError(f"{path}: written in {written}; loop runs {', '.join(runnable)}")
    check_sources(solution, path)
    folder = f"{model.ANSWERS}/{name}"
    texts = {f"{folder}/{source.path}": source.content for source in solution.sources}
    if solution.languages & set(COMPILED_LANGUAGES):
        fields, unit, text = _compiled_variant(definition, folder, path, solution, entries)
        return fields, {**texts, f"{folder}/{unit}": text}
    file, _, function = solution.spec.entry_point.partition("::")
    content = next(source.content for source in solution.sources if source.path == file)
    if not model.read_module(path, content).defines(function):
        raise file_error(path, f"{file} with a function {function}", "no such function")
    outputs: dict[str, Any] = {key: each.dtype for key, each in definition.outputs.items()}
    run = RUN_RETURNING
    if solution.spec.destination_passing_style:
        outputs = {key: (each.shape or (), each.dtype) for key, each in definition.outputs.items()}
        run = RUN_PASSING
    values = {
        "what": f"the solution {name}",
        "file": f"{folder}/{file}",
        "run": run,
        "inputs": {key: each.shape for key, each in definition.inputs.items()},
        "outputs": outputs,
        "sizes": sizes,
        "function": function,
    }
    texts[f"{name}_answer.py"] = ANSWER_TEXT.format(**values)
    python_files = [source.content for source in solution.sources if source.path.endswith(".py")]
    modules = [model.read_module(path, content) for content in python_files]
    own_modules = [Path(source.path).parts[0].removesuffix(".py") for source in solution.sources]
    fields = model.variant_fields(task, f"{name}_answer.py", "run", f"the solution {path.name}")
    return fields | model.device_fields(path, modules, own_modules), texts


def _compiled_variant(
    definition: Definition, folder: str, path: Path, solution: Solution, entries: Entries
) -> tuple[dict[str, Any], str, str]:
    """Of a C++ or CUDA solution: the variant's fields, and name and text of its translation unit.
    Scalars are compiled into the unit, so all workloads (`entries`) have to agree on them."""
    spec = solution.spec
    if spec.binding != "torch" and not spec.languages:
        raise UsageError(f"{path}: bound by {spec.binding or 'tvm-ffi'}; loop builds `torch`")
    scalars = [name for name, argument in definition.inputs.items() if argument.shape is None]
    if any(entry[name] != entries[0][name] for entry in entries for name in scalars):
        listed = ", ".join(scalars)
        raise UsageError(f"{path}: compiled answers get tensors; {listed} differs by workload")
    tensors = [name for name in definition.inputs if name not in scalars]
    lines = [f"    auto in_{name} = loop_made::of(inputs[{n}]);" for n, name in enumerate(tensors)]
    arguments = []
    for name in definition.inputs:
        value = entries[0].get(name)
        literal = str(value).lower() if isinstance(value, bool) else repr(value)  # In C++.
        arguments.append(literal if name in scalars else f"in_{name}")
    file, _, function = spec.entry_point.partition("::")
    call = f"loop_made::keep(outputs, {function}({', '.join(arguments)}))"
    if spec.destination_passing_style:
        names = [f"out_{name}" for name in definition.outputs]
        lines += [f"    auto {name} = loop_made::of(outputs[{n}]);" for n, name in enumerate(names)]
        call = f"{function}({', '.join([*arguments, *names])})"
    paths = [source.path for source in solution.sources]
    is_cuda = bool({"cuda", "cuda_cpp"} & solution.languages)
    is_cuda = is_cuda or any(each.endswith(".cu") for each in paths)
    text = UNIT_TEMPLATE.format(
        name=solution.name.replace("\n", " "),
        source=file,
        entry=COMPILED_ENTRY,
        call=call,
        count=len(definition.outputs),
        tensors="\n".join(lines),
        device="at::Device(at::kCUDA, 0)" if is_cuda else "at::kCPU",
        cuda=CUDA_HEADERS if is_cuda else "",
        guard=GUARD if is_cuda else "(void)stream;",
    )
    unit = f"loop_unit{Path(file).suffix}"
    other_units = [source for source in paths if source != file and source.endswith(UNIT_SUFFIXES)]
    fields = {
        "kind": "c_abi",
        "title": f"the solution {path.name}",
        "device": "cuda" if is_cuda else "cpu",
        "dtypes": list(FLOATS),
        "sources": [f"{folder}/{source}" for source in (unit, *other_units)],
        "entry": COMPILED_ENTRY,
        "build": build_recipe(solution, folder, is_cuda=is_cuda),
    }
    return fields, unit, text
