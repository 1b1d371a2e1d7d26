"""A variant of a target written as an answer in somebody else's format, with the task that it answers.

What a format cannot say is refused with its reason, or told as a remark. Files of the target are embedded whole:
an answer needs nothing of `loop`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.base.places import include_folder
from loop.formats import python_text
from loop.model.dtypes import Dtype
from loop.model.signature import ANY
from loop.model.target import CAbiVariant, PythonVariant, Target, Workload

HEADER = "loop_kernel.h"
UNIT = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
C_TYPES = {"flag": "bool", "number": "double", "choice": "int64_t"}
DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "int8", "int16", "bool")
TORCH_TYPES = ("Float", "Half", "BFloat16", "Double", "Int", "Long", "Byte", "Char", "Short", "Bool")
BINDING = """// Made by loop: the variant {name}, called through its C interface.
#include <torch/extension.h>
{cuda}
#include "loop_kernel.h"

LOOP_EXPORT int {entry}(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream);
LOOP_EXPORT __attribute__((weak)) const char *loop_error(int error);

static LoopTensor as_loop(const torch::Tensor &one) {{
  static const at::ScalarType types[] = {{{types}}};
  LoopTensor made = {{one.data_ptr(), 0, (int32_t)one.dim(), {{0}}, {{0}}}};
  for (int n = 0; n < {count}; ++n) made.dtype = types[n] == one.scalar_type() ? n + 1 : made.dtype;
  for (int n = 0; n < one.dim(); ++n) made.sizes[n] = one.size(n), made.strides[n] = one.stride(n);
  return made;
}}

void run({parameters}) {{
  const LoopTensor inputs[] = {{{inputs}}};
  LoopTensor outputs[] = {{{outputs}}};
  const double attributes[] = {{{attributes}}};
  const int error = {entry}(inputs, outputs, attributes, {stream});
  TORCH_CHECK(error == 0, "error ", error, ": ", loop_error ? loop_error(error) : "");
}}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("run", &run); }}
"""
LOADED = """import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

FILES = {files}
UNITS = {units}


def _built():
    folder = Path(tempfile.mkdtemp(prefix="{name}-"))
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return load(
        name="loop_{name}",
        sources=[str(folder / one) for one in UNITS],
        extra_include_paths=[str(folder)],
        extra_cflags={cflags},
        extra_cuda_cflags={cuda},
    )


_extension = _built()


def {function}({arguments}):
{made}
    _extension.run({passed})
{returned}
"""


@dataclass(frozen=True)
class Exported:
    """Files by their paths, and what could not be said."""

    files: Mapping[str, str]
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Portable:
    """A variant of a target, and the calls it is written for."""

    target: Target
    folder: Path
    """The target's."""
    name: str
    workloads: Sequence[Workload]
    architecture: str
    """What `{arch}` of build flags stands for."""
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise UsageError for a target that no format can express."""
        signature = self.target.signature
        known = signature.inputs and signature.outputs
        if not known or ANY in (*signature.inputs.values(), *signature.outputs.values()):
            raise self._refused("shapes that only its generator knows")
        if self.target.generator or self.target.modules or signature.updates:
            raise self._refused("a generator, classes or inputs changed in place")
        if len({one.dtype for one in self.workloads}) != 1:
            raise self._refused("workloads of several element types", "choose some: --workloads")
        if any(one.values != "normal" for one in self.workloads):
            self.remarks.append("values of inputs: the format fills them with unit normals")

    def _refused(self, what: str, hint: str = "loop targets inspect, docs/exports.md") -> UsageError:
        return UsageError(f"{self.target.name}: the formats have no word for {what}", hint=hint)

    @property
    def dtype(self) -> Dtype:
        """Element type of all workloads."""
        return self.workloads[0].dtype

    def type_of(self, tensor: str) -> str:
        """Element type of an input or output."""
        return self.target.signature.types.get(tensor, self.dtype)

    @property
    def fixed(self) -> dict[str, Any]:
        """Attributes that have one value in all workloads."""
        names = self.target.signature.attributes
        values = {
            name: {one.attributes.get(name, names[name].initial) for one in self.workloads} for name in names
        }
        return {name: next(iter(some)) for name, some in values.items() if len(some) == 1}

    @property
    def given(self) -> list[str]:
        """Attributes that differ by workload: scalars of a call. Raises UsageError for one that is a word."""
        found = [name for name in self.target.signature.attributes if name not in self.fixed]
        for name in found:
            if self.target.signature.attributes[name].kind == "choice":
                raise self._refused(f"the words of {name}", "choose workloads with one of them: --workloads")
        return found

    def called(self, function: str, *outputs: str) -> str:
        """The call of a Python function, with fixed attributes written out; `outputs`: those passed to it."""
        fixed = [f"{name}={value!r}" for name, value in self.fixed.items()]
        keywords = [*fixed, *(f"{name}={name}" for name in self.given)]
        return f"{function}({', '.join([*self.target.signature.inputs, *outputs, *keywords])})"

    def python(self, name: str, called: str, *, passed: bool = False) -> str:
        """A function of the target as text that defines `called(inputs, scalars)`, which returns the outputs.

        `passed`: the function itself writes them to tensors that are passed to it. Raises UsageError for one that
        needs files beside its own, or code of loop's.
        """
        module, colon, function = name.partition(":")
        if not colon:
            raise self._refused(f"{name}, which ships with loop")
        path = self._file(module)
        read = python_text.read_module(path)
        if beside := [one for one in read.imports if one == "loop" or self._beside(path, one)]:
            raise self._refused(f"{path.name}, which imports {', '.join(beside)} from beside it")
        given = ", ".join([*self.target.signature.inputs, *self.given])
        text = path.read_text().rstrip()
        outputs = [*self.target.signature.outputs] if passed else []
        call = self.called(f"_{called}_of", *outputs)
        lines = [*self._allocated(), f"    {call}", self._return] if passed else [f"    return {call}"]
        head = f"import torch\n\n_{called}_of = {function}\n\n\ndef {called}({given}):"
        return "\n".join([f"{text}\n\n", head, *lines, ""])

    def _file(self, module: str) -> Path:
        path = self.folder / (module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
        if not path.is_file():
            raise self._refused(f"the installed module {module}")
        return path

    def _beside(self, path: Path, name: str) -> bool:
        return any(
            (folder / f"{name}.py").is_file() or (folder / name).is_dir() for folder in (path.parent, self.folder)
        )

    @property
    def variant(self) -> PythonVariant | CAbiVariant:
        """The variant. Raises UsageError for a program: no format calls one."""
        found = self.target.variants[self.name]
        if isinstance(found, PythonVariant | CAbiVariant):
            return found
        raise self._refused(f"a program ({self.name})")

    def answer(self, called: str) -> str:
        """The variant as one Python file that defines `called(inputs, scalars)`, which returns its outputs."""
        variant = self.variant
        if isinstance(variant, PythonVariant):
            passed = variant.passing == "passed"
            return self.python(f"{variant.module}:{variant.function}", called, passed=passed)
        files, units = self.sources()
        on_gpu = variant.device == "cuda"
        inputs, outputs = self.target.signature.inputs, self.target.signature.outputs
        return LOADED.format(
            files=repr(files),
            units=repr(units),
            name=self.name,
            cflags=[] if on_gpu else self.flags,
            cuda=self.flags if on_gpu else [],
            function=called,
            arguments=", ".join([*inputs, *self.given]),
            made="\n".join(self._allocated()),
            passed=", ".join([*inputs, *self.given, *outputs]),
            returned=self._return,
        )

    @property
    def flags(self) -> list[str]:
        """Flags of a compiled variant's build, without macros, which stand in the sources, and without the GPU."""
        variant = self.target.compiled(self.name, self.architecture)
        return [one for one in variant.build.flags if not one.startswith(("-D", "-arch"))]

    @property
    def _return(self) -> str:
        return f"    return {', '.join(self.target.signature.outputs)}"

    def _allocated(self) -> Iterator[str]:
        """Lines that make the outputs, their sizes read off the inputs."""
        signature = self.target.signature
        places = {
            word: f"{name}.shape[{n}]"
            for name, text in signature.inputs.items()
            for n, word in enumerate(text.split())
        }
        first = next(iter(signature.inputs))
        for name, text in signature.outputs.items():
            sizes = ", ".join(places[word] for word in text.split())
            kind = f"{first}.dtype" if name not in signature.types else f"torch.{self.type_of(name)}"
            yield f"    {name} = torch.empty([{sizes}], dtype={kind}, device={first}.device)"

    def sources(self) -> tuple[dict[str, str], list[str]]:
        """Files of a compiled variant with a torch binding, and those that are translation units.

        Macros of its build become lines before the source that they are for.
        """
        variant = self.target.compiled(self.name, self.architecture)
        macros = [one[2:].partition("=") for one in variant.build.flags if one.startswith("-D")]
        files: dict[str, str] = {HEADER: (include_folder() / HEADER).read_text()}
        units = []
        for number, source in enumerate(variant.sources):
            self._gather(source, files, f"{source}.inc")
            lines = [f"#define {name} {value or 1}" for name, _, value in macros]
            units.append(f"unit_{number}{Path(source).suffix}")
            files[units[-1]] = "\n".join([*lines, f'#include "{source}.inc"', ""])
        files["binding.cpp"] = self._binding(variant)
        return files, ["binding.cpp", *units]

    def _gather(self, path: str, files: dict[str, str], name: str) -> None:
        """A file and all that it includes from the target's folder."""
        if name in files or path == HEADER:
            return
        files[name] = text = (self.folder / path).read_text()
        for wanted in UNIT.findall(text):
            near = (Path(path).parent / wanted).as_posix()
            found = next((one for one in (near, wanted) if (self.folder / one).is_file()), None)
            if found is None and wanted != HEADER:
                raise self._refused(f"{wanted}, which {path} includes from elsewhere")
            if found:
                self._gather(found, files, found)

    def _binding(self, variant: CAbiVariant) -> str:
        signature, on_gpu = self.target.signature, variant.device == "cuda"
        scalars = [f"{C_TYPES[signature.attributes[name].kind]} {name}" for name in self.given]
        tensors = [f"torch::Tensor {name}" for name in signature.inputs]
        outputs = [f"torch::Tensor {name}" for name in signature.outputs]
        numbers = [name if name in self.given else self._number(name) for name in signature.attributes]
        return BINDING.format(
            name=self.name,
            cuda="#include <ATen/cuda/CUDAContext.h>" if on_gpu else "",
            entry=variant.entry,
            types=", ".join(f"at::k{one}" for one in TORCH_TYPES),
            count=len(TORCH_TYPES),
            parameters=", ".join([*tensors, *scalars, *outputs]),
            inputs=", ".join(f"as_loop({name})" for name in signature.inputs),
            outputs=", ".join(f"as_loop({name})" for name in signature.outputs),
            attributes=", ".join(numbers) or "0",
            stream="(void *)at::cuda::getCurrentCUDAStream().stream()" if on_gpu else "nullptr",
        )

    def _number(self, name: str) -> str:
        """A fixed attribute as C sees it."""
        value, attribute = self.fixed[name], self.target.signature.attributes[name]
        if attribute.kind == "choice":
            return str(attribute.choices.index(value))
        return '__builtin_nan("")' if value is None else str(float(value))
