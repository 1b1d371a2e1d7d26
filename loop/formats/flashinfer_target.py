"""Make a target of a FlashInfer Trace or SOL-ExecBench task and its Python, C++ or CUDA solutions."""

import importlib.util
import json
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats import python_text
from loop.formats.flashinfer import (
    Constant,
    Definition,
    ExpressionAxis,
    Solution,
    TraceLine,
    TraceWorkload,
    Variable,
    check_sources,
)
from loop.formats.model import ForeignTask
from loop.formats.python_text import file_error, read_json, read_lines
from loop.formats.target import (
    ANSWERS,
    TargetDraft,
    device_fields,
    find_unnameable,
    tolerance_fields,
    variant_fields,
)

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
thread_local std::string said;

at::Tensor of(const LoopTensor &one) {{
  static const at::ScalarType types[] = {{
      at::ScalarType::Undefined, at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kInt, at::kLong, at::kByte,
      at::kChar, at::kShort, at::kBool, at::kFloat8_e4m3fn, at::kFloat8_e5m2}};
  auto options = at::TensorOptions().dtype(types[one.dtype]).device({device});
  return at::from_blob(one.data, {{one.sizes, (size_t)one.rank}}, {{one.strides, (size_t)one.rank}}, options);
}}

void keep(LoopTensor *outputs, const std::vector<at::Tensor> &found) {{
  TORCH_CHECK(found.size() == {count}, "it returned ", found.size(), " outputs instead of {count}");
  for (const auto &one : found) {{
    const at::Tensor wanted = of(*outputs++);
    TORCH_CHECK(one.scalar_type() == wanted.scalar_type() && one.sizes() == wanted.sizes(), "it returned ",
                one.scalar_type(), " ", one.sizes(), " instead of ", wanted.scalar_type(), " ", wanted.sizes());
    wanted.copy_(one);
  }}
}}
void keep(LoopTensor *outputs, const at::Tensor &found) {{ keep(outputs, std::vector<at::Tensor>{{found}}); }}
template <class... Tensors> void keep(LoopTensor *outputs, const std::tuple<Tensors...> &found) {{
  std::apply([&](const auto &...one) {{ keep(outputs, std::vector<at::Tensor>{{one...}}); }}, found);
}}
}}  // namespace loop_made

LOOP_EXPORT __attribute__((weak)) const char *loop_error(int) {{ return loop_made::said.c_str(); }}

LOOP_EXPORT int {entry}(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *stream) {{
  try {{
    at::NoGradGuard no_gradients;
    {guard}
{tensors}
    {call};
    return 0;
  }} catch (const c10::Error &error) {{
    loop_made::said = error.what_without_backtrace();
  }} catch (const std::exception &error) {{
    loop_made::said = error.what();
  }}
  return 1;
}}
"""
CUDA_HEADERS = "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n"
STREAM = "c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal((cudaStream_t)stream, 0));"


def _unit_text(definition: Definition, solution: Solution, source: str, scalars: Mapping[str, Any]) -> str:
    """The translation unit that calls a solution; `source`: entry's file, `scalars`: input values."""
    _, _, function = solution.spec.entry_point.partition("::")
    tensors = [name for name, spec in definition.inputs.items() if spec.shape is not None]
    arguments = []
    for name in definition.inputs:
        value = scalars.get(name)
        literal = str(value).lower() if isinstance(value, bool) else repr(value)  # As C++ writes it.
        arguments.append(literal if name in scalars else f"in_{name}")
    lines = [f"    auto in_{name} = loop_made::of(inputs[{n}]);" for n, name in enumerate(tensors)]
    if solution.spec.destination_passing_style:
        output_names = [f"out_{name}" for name in definition.outputs]
        lines += [f"    auto {name} = loop_made::of(outputs[{n}]);" for n, name in enumerate(output_names)]
        call = f"{function}({', '.join([*arguments, *output_names])})"
    else:
        call = f"loop_made::keep(outputs, {function}({', '.join(arguments)}))"
    is_cuda = solution.runs_on_gpu
    return UNIT_TEMPLATE.format(
        name=solution.name.replace("\n", " "),
        source=source,
        entry=COMPILED_ENTRY,
        call=call,
        count=len(definition.outputs),
        tensors="\n".join(lines),
        device="at::Device(at::kCUDA, 0)" if is_cuda else "at::kCPU",
        cuda=CUDA_HEADERS if is_cuda else "",
        guard=STREAM if is_cuda else "(void)stream;",
    )


def build_recipe(solution: Solution, folder: str) -> dict[str, Any]:
    """Compiler and flags; `folder`: the solution's, in the target. UsageError without torch headers."""
    spec = importlib.util.find_spec("torch")
    torch = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
    if not (torch / "include/torch/extension.h").is_file():
        raise UsageError("a solution in C++ or CUDA needs the headers of torch, which are not installed here")
    include, python_include = torch / "include", sysconfig.get_paths()["include"]
    headers = (folder, include, include / "torch/csrc/api/include", python_include)
    common_flags = ["-std=c++20", *(f"-I{path}" for path in headers), "-DTORCH_EXTENSION_NAME=loop_answer_of"]
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    options = solution.spec.compile_options or {}
    own_link_flags = [str(option) for option in options.get("ld_flags", ())]
    if not solution.runs_on_gpu:
        flags = [*map(str, options.get("cflags", ()))]
        link_flags = ["-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{torch / 'lib'}", *own_link_flags]
        return {"compiler": "g++", "flags": ["-O3", *common_flags, *flags, *link_flags]}
    flags = [*map(str, options.get("cuda_cflags", ("-O3", "--use_fast_math")))]
    libraries += ["-lc10_cuda", "-ltorch_cuda", "-Xlinker", f"-rpath,{torch / 'lib'}", *own_link_flags]
    link_flags = ["--expt-relaxed-constexpr", "-Xlinker", "--no-as-needed", *libraries]
    return {"compiler": "nvcc", "flags": [*flags, "-arch={arch}", *common_flags, *link_flags]}


PYTHON_LANGUAGES = ("python", "triton", "pytorch")
REFERENCE_VARIANT = "theirs"
TYPES = ("float64", "float32", "float16", "bfloat16")
HEAD = '''"""Made by loop: {what}, as a target calls it."""

import json
from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
'''
ENTRY_TEMPLATE = (
    HEAD
    + '''SPECS = json.loads("""{specs}""")
SIZES = json.loads("""{sizes}""")

inputs = {generator}
OUTPUTS = json.loads("""{outputs}""")
expected = foreign.pass_by_position(foreign.import_function(HERE / "reference.py", "run"), list(SPECS), OUTPUTS)
'''
)
RANDOM_INPUTS = "foreign.make_random_generator(SPECS, SIZES)"
CUSTOM_INPUTS = (
    'foreign.adapt_axes_generator(foreign.import_function(HERE / "reference.py", "{name}"), list(SPECS))'
)
ANSWER_TEMPLATE = (
    HEAD
    + '''INPUTS = json.loads("""{inputs}""")
OUTPUTS = json.loads("""{outputs}""")
SIZES = json.loads("""{sizes}""")

answer = foreign.import_function(HERE / "{file}", "{function}")
run = {run}
'''
)
RUN_PASSING = "foreign.return_outputs(answer, INPUTS, OUTPUTS, SIZES)"
RUN_RETURNING = (
    "foreign.pass_by_position(answer, list(INPUTS), {name: dtype for name, (_, dtype) in OUTPUTS.items()})"
)


def make_target(task: ForeignTask, answers: Mapping[str, Path]) -> TargetDraft:
    """Make a target of the task and answers (name to file). Raises LoopError if it cannot run."""
    definition, _ = read_json(task.files[0], Definition)
    sizes: dict[str, int | str] = {}  # Axes that workloads do not set: constants and formulas, in order.
    for name, axis in definition.axes.items():
        if not isinstance(axis, Variable):
            sizes[name] = axis.value if isinstance(axis, Constant) else axis.expression
    entries = _workload_entries(task, definition)
    generator = definition.custom_inputs_entrypoint
    values = {
        "what": "the task",
        "specs": _json_literal({name: (spec.shape, spec.dtype) for name, spec in definition.inputs.items()}),
        "sizes": _json_literal(sizes),
        "outputs": _json_literal({name: spec.dtype for name, spec in definition.outputs.items()}),
        "generator": CUSTOM_INPUTS.format(name=generator) if generator else RANDOM_INPUTS,
    }
    texts = {"reference.py": definition.reference + "\n", "entry.py": ENTRY_TEMPLATE.format(**values)}
    variants: dict[str, Any] = {}
    for name, path in answers.items():
        variants[name], answer_texts = _answer_variant(task, definition, name, path, entries, sizes)
        texts |= answer_texts
    if not variants:
        title = "the task's own reference"
        variants[REFERENCE_VARIANT] = variant_fields(task, "entry.py", "expected", title, "example")
    scalars = {}
    for name, spec in definition.inputs.items():
        if spec.shape is None:
            scalars[name] = {"kind": "flag" if spec.dtype == "bool" else "number"}
    axes = [name for name, axis in definition.axes.items() if not isinstance(axis, ExpressionAxis)]
    types = [spec.dtype for spec in (*definition.outputs.values(), *definition.inputs.values())]
    dtype = next((dtype for dtype in types if dtype in TYPES), "float32")  # The type whose tolerance counts.
    fields = {
        "function": "run",
        "signature": {"sizes": axes, "parameters": scalars},
        "generator": {"python": "entry.py:inputs", "passes": "keywords"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        "tolerance": {dtype: tolerance_fields(task.judging, 1e-2) for dtype in TYPES},
        "dtypes": dict.fromkeys(("cpu", "cuda"), dtype),
        "workloads": {"task": entries},
        "variants": variants,
    }
    return TargetDraft(fields, {}, texts)


Entries = Sequence[Mapping[str, Any]]
"""Workloads of target.yaml: each maps axes and scalars to values."""


def _json_literal(value: Any) -> str:
    """A value as JSON text, escaped for a triple-quoted Python string."""
    return json.dumps(value).replace("\\", "\\\\")


def _workload_entries(task: ForeignTask, definition: Definition) -> list[dict[str, Any]]:
    """Workloads of target.yaml; those with inputs in files are left out. UsageError without any."""
    workloads = []
    for path in task.files:
        if path.suffix == ".jsonl" and task.path.is_dir():  # SOL-ExecBench.
            workloads += [workload for workload, _ in read_lines(path, TraceWorkload)]
        elif path.suffix == ".jsonl":
            lines = [line for line, _ in read_lines(path, TraceLine)]
            workloads += [line.workload for line in lines if line.definition == definition.name]
    constants = {name: axis.value for name, axis in definition.axes.items() if isinstance(axis, Constant)}
    variable_axes = [name for name, axis in definition.axes.items() if isinstance(axis, Variable)]
    entries = []
    for workload in workloads:
        if not any(source.type == "safetensors" for source in workload.inputs.values()):
            sizes = {name: workload.axes[name] for name in variable_axes}
            scalars = {name: source.value for name, source in workload.inputs.items() if source.type == "scalar"}
            entry = {**constants, **sizes, **scalars}
            for name in find_unnameable([*entry]):
                raise UsageError(f"{task.path}: {name}: loop cannot name such an axis")
            entries.append(entry)
    if not entries:
        why = "no workload whose inputs loop can make"
        raise UsageError(f"{task.path}: {why}", f"loop targets inspect {task.path}")
    return entries


def _answer_variant(
    task: ForeignTask,
    definition: Definition,
    name: str,
    path: Path,
    entries: Entries,
    sizes: Mapping[str, int | str],
) -> tuple[dict[str, Any], dict[str, str]]:
    """A solution as a variant `name`, and its files (name to text). Raises LoopError if it cannot run.

    `entries`: the workloads. `sizes`: axis to a constant or a formula.
    """
    solution = _read_solution(definition, path)
    folder = f"{ANSWERS}/{name}"
    texts = {f"{folder}/{source.path}": source.content for source in solution.sources}
    if solution.languages & set(COMPILED_LANGUAGES):
        (unit, text), fields = _compiled_variant(definition, folder, path, solution, entries)
        return fields, {**texts, f"{folder}/{unit}": text}
    file, _, function = solution.spec.entry_point.partition("::")
    outputs = {key: (spec.shape or (), spec.dtype) for key, spec in definition.outputs.items()}
    values = {
        "what": f"the solution {name}",
        "file": f"{folder}/{file}",
        "run": RUN_PASSING if solution.spec.destination_passing_style else RUN_RETURNING,
        "inputs": _json_literal({key: spec.shape for key, spec in definition.inputs.items()}),
        "outputs": _json_literal(outputs),
        "sizes": _json_literal(sizes),
        "function": function,
    }
    texts[f"{name}_answer.py"] = ANSWER_TEMPLATE.format(**values)
    python_files = [source.content for source in solution.sources if source.path.endswith(".py")]
    modules = [python_text.read_module(path, content) for content in python_files]
    own_modules = [Path(source.path).parts[0].removesuffix(".py") for source in solution.sources]
    fields = variant_fields(task, f"{name}_answer.py", "run", f"the solution {path.name}")
    return fields | device_fields(path, modules, own_modules), texts


def _compiled_variant(
    definition: Definition, folder: str, path: Path, solution: Solution, entries: Entries
) -> tuple[tuple[str, str], dict[str, Any]]:
    """For a C++ or CUDA solution: name and text of its translation unit, and the variant's fields.

    Scalars are compiled into the unit, so all workloads (`entries`) have to agree on them.
    """
    if solution.spec.binding != "torch" and not solution.spec.languages:
        raise UsageError(f"{path}: bound by {solution.spec.binding or 'tvm-ffi'}; loop builds the binding `torch`")
    names = [name for name, spec in definition.inputs.items() if spec.shape is None]
    scalars = {name: entries[0][name] for name in names}
    if any(entry[name] != scalars[name] for entry in entries for name in names):
        raise UsageError(f"{path}: compiled answers are given tensors; {', '.join(names)} differs by workload")
    file = solution.spec.entry_point.partition("::")[0]
    paths = [source.path for source in solution.sources]
    unit = f"loop_unit{Path(file).suffix}"
    other_units = [source for source in paths if source != file and source.endswith(UNIT_SUFFIXES)]
    fields = {
        "kind": "c_abi",
        "title": f"the solution {path.name}",
        "device": "cuda" if solution.runs_on_gpu else "cpu",
        "dtypes": list(TYPES),
        "sources": [f"{folder}/{source}" for source in (unit, *other_units)],
        "entry": COMPILED_ENTRY,
        "build": build_recipe(solution, folder),
    }
    return (unit, _unit_text(definition, solution, file, scalars)), fields


def _read_solution(definition: Definition, path: Path) -> Solution:
    """Read a solution. Raises LoopError if definition, language or entry do not fit."""
    solution, _ = read_json(path, Solution)
    if solution.definition != definition.name:
        raise file_error(path, f"a solution of {definition.name}", f"one of {solution.definition}")
    runnable = (*PYTHON_LANGUAGES, *COMPILED_LANGUAGES)
    if not solution.languages <= set(runnable):
        written = ", ".join(sorted(solution.languages))
        raise UsageError(f"{path}: written in {written}; loop runs solutions in {', '.join(runnable)}")
    check_sources(solution, path)
    file, _, function = solution.spec.entry_point.partition("::")
    content = next(source.content for source in solution.sources if source.path == file)
    if solution.languages & set(COMPILED_LANGUAGES):
        return solution
    if not python_text.read_module(path, content).defines(function):
        raise file_error(path, f"{file} with a function {function}", "no such function")
    return solution
