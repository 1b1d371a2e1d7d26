"""Solutions in C++ and CUDA with a torch binding: a translation unit of ours calls them behind our C interface.

It includes the file of the solution's entry point. The other files are translation units beside it. `loop` builds
them as any compiled variant; nothing goes through Python.
"""

import importlib.util
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats.flashinfer_files import Definition, Solution

LANGUAGES = ("cpp", "cuda", "cuda_cpp")
UNITS = (".cpp", ".cc", ".cxx", ".cu")
ENTRY = "loop_answer"
UNIT = """// Made by loop: the solution {name} behind the C interface.
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


def unit(definition: Definition, solution: Solution, source: str, scalars: Mapping[str, Any]) -> str:
    """The translation unit; `source`: the file of the entry point as it includes it; `scalars`: by input."""
    _, _, function = solution.spec.entry_point.partition("::")
    tensors = [name for name, spec in definition.inputs.items() if spec.shape is not None]
    arguments = [_literal(scalars[name]) if name in scalars else f"in_{name}" for name in definition.inputs]
    lines = [f"    auto in_{name} = loop_made::of(inputs[{n}]);" for n, name in enumerate(tensors)]
    if solution.spec.destination_passing_style:
        passed = [f"out_{name}" for name in definition.outputs]
        lines += [f"    auto {name} = loop_made::of(outputs[{n}]);" for n, name in enumerate(passed)]
        call = f"{function}({', '.join([*arguments, *passed])})"
    else:
        call = f"loop_made::keep(outputs, {function}({', '.join(arguments)}))"
    on_gpu = is_cuda(solution)
    return UNIT.format(
        name=solution.name.replace("\n", " "),
        source=source,
        entry=ENTRY,
        call=call,
        count=len(definition.outputs),
        tensors="\n".join(lines),
        device="at::Device(at::kCUDA, 0)" if on_gpu else "at::kCPU",
        cuda=CUDA_HEADERS if on_gpu else "",
        guard=STREAM if on_gpu else "(void)stream;",
    )


def _literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def is_cuda(solution: Solution) -> bool:
    """Whether it runs on a GPU: by its language, or by the kind of its files."""
    languages = solution.spec.languages or (solution.spec.language or "",)
    return bool({"cuda", "cuda_cpp"} & set(languages)) or any(
        source.path.endswith(".cu") for source in solution.sources
    )


def recipe(solution: Solution, folder: str) -> dict[str, Any]:
    """Compiler and flags; `folder`: that of the solution's files, from the target's. Raises UsageError."""
    spec = importlib.util.find_spec("torch")
    torch = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
    if not (torch / "include/torch/extension.h").is_file():
        raise UsageError("a solution in C++ or CUDA needs the headers of torch, which are not installed here")
    options = solution.spec.compile_options or {}
    headers = (
        folder,
        torch / "include",
        torch / "include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
    )
    shared = ["-std=c++20", *(f"-I{path}" for path in headers), "-DTORCH_EXTENSION_NAME=loop_answer_of"]
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    if not is_cuda(solution):
        flags = [*map(str, options.get("cflags", ()))]
        rest = ["-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{torch / 'lib'}", *_linked(options)]
        return {"compiler": "g++", "flags": ["-O3", *shared, *flags, *rest]}
    flags = [*map(str, options.get("cuda_cflags", ("-O3", "--use_fast_math")))]
    rest = [
        "-Xlinker",
        "--no-as-needed",
        *libraries,
        "-lc10_cuda",
        "-ltorch_cuda",
        "-Xlinker",
        f"-rpath,{torch / 'lib'}",
        *_linked(options),
    ]
    return {"compiler": "nvcc", "flags": [*flags, "-arch={arch}", *shared, "--expt-relaxed-constexpr", *rest]}


def _linked(options: Mapping[str, Any]) -> Sequence[str]:
    return [str(option) for option in options.get("ld_flags", ())]
