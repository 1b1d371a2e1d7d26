"""`loop init` for a compiled kernel: find its exported entry, or write one for a C function."""

import ast
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.builds.build import files_of
from loop.formats.python_text import read_module, read_text
from loop.starting.c_text import STREAM, CFunction, CParameter, functions, uncalled, without_comments

TERMS = "const LoopTensor *loop_in, LoopTensor *loop_out, const double *loop_attributes, void *loop_stream"
SCRATCH = re.compile(r"(?i).*(scratch|work|tmp|temp|buf|ws|cache).*")
COUNT = re.compile(r"(?i)(n|len|length|size|count|total|numel|elements|num_elements|nelem|num)")
GLUE = """\
/* Made by loop: gives `{name}` its tensors. Mend the call where loop guessed wrong. */
#include "loop_kernel.h"
#include <stdlib.h>

/* Elements of a contiguous tensor of a type; -1 for any other. */
static int64_t loop_elements(const LoopTensor *tensor, int dtype) {{
  int64_t count = 1;
  for (int i = tensor->rank - 1; i >= 0; count *= tensor->sizes[i--])
    if (tensor->sizes[i] > 1 && tensor->strides[i] != count) return -1;
  return tensor->dtype == dtype ? count : -1;
}}
static void *loop_data(const LoopTensor *tensor) {{ return tensor->data; }}
static int64_t loop_size(const LoopTensor *tensor, int axis) {{ return tensor->sizes[axis]; }}

#include "{source}"

LOOP_EXPORT const char *loop_error(int loop_code) {{
  return loop_code == 1 ? "{wants}" : loop_code == 2 ? "{name} returned an error" : "";
}}

LOOP_EXPORT int loop_entry({terms}) {{
  (void)loop_attributes, (void)loop_stream;
{body}  return 0;
}}
"""
RESULTS = ("float", "double", "int")
"""Return types that hold the only output of a function without output parameter."""
FLOATING = ("float32", "float64", "bool")


@dataclass(frozen=True)
class Glue:
    """A plain C function that needs an entry; `text` writes that entry."""

    path: Path
    function: CFunction
    constants: Mapping[str, Any]
    """Parameter to its `--set` value, for parameters that the reference does not take."""

    @property
    def tensors(self) -> list[CParameter]:
        """Its pointer parameters to tensor elements."""
        return [parameter for parameter in self.function.parameters if parameter.pointers == 1 and parameter.dtype]

    @property
    def numbers(self) -> list[CParameter]:
        """Its numeric parameters, passed by value."""
        return [parameter for parameter in self.function.parameters if not parameter.pointers and parameter.dtype]

    def types(self, inputs: Sequence[str]) -> dict[str, str]:
        """Input to element type (empty: float32), by the parameter of equal name, else by order."""
        own = {pointer.name: pointer.dtype or "" for pointer in self.tensors}
        constant = [pointer.dtype or "" for pointer in self.tensors if pointer.is_const]
        in_order = dict(zip(inputs, constant or own.values(), strict=False))
        types = {name: own.get(name) or in_order.get(name, "") for name in inputs}
        return {name: "" if dtype == "float32" else dtype for name, dtype in types.items()}

    def text(self, facts: Mapping[str, Any]) -> tuple[str, list[str]]:
        """Source of the entry, and notes on guesses; `facts`: see `facts_of`. Raises UsageError."""
        name, parameters, returns = self.function.name, self.function.parameters, self.function.returns
        if self.function.lacks:
            raise self._unclear(self.function.lacks)
        if self.path.suffix == ".cu" and not any(parameter.type == STREAM for parameter in parameters):
            message = f"{self.path}:{self.function.line}: {name} does not say on which stream it launches"
            raise UsageError(message, hint=f"give it a parameter `{STREAM} stream`, and launch on that")
        inputs = {name: f"&loop_in[{n}]" for n, (name, _, _) in enumerate(facts["inputs"])}
        fresh = [output for output in facts["outputs"] if output[0] not in facts["updates"]]
        outputs = {name: f"&loop_out[{n}]" for n, (name, _, _) in enumerate(fresh)}
        places = self._places(inputs, outputs)
        sizes: dict[str, str] = {}  # Name to a C expression, from the first tensor with that size.
        for place, tensors in (("loop_in", facts["inputs"]), ("loop_out", fresh)):
            for n, (_, dims, _) in enumerate(tensors):
                for axis, word in enumerate((dims or "").split()):
                    sizes.setdefault(word, f"loop_size(&{place}[{n}], {axis})")
        arguments = ", ".join(self._argument(parameter, places, sizes, facts) for parameter in parameters)
        call = f"{self.function.called}({arguments})"
        types = dict.fromkeys(dtype or "float32" for _, _, dtype in facts["inputs"])
        wants = f"tensors must be contiguous {', '.join(types)}"
        wanted = enumerate(_number_of(dtype) for _, _, dtype in facts["inputs"])
        lines = [f"if (loop_elements(&loop_in[{n}], {dtype}) < 0) return 1;" for n, dtype in wanted]
        every = [place[1:] for place in (*inputs.values(), *outputs.values())]
        count = " + ".join(f"loop_elements(&{place}, {place}.dtype)" for place in every)
        scratch = [pointer for pointer, place in places.items() if place == "scratch"]
        lines += [f"void *loop_{pointer} = calloc(8 * ({count}) + (1 << 20), 1);" for pointer in scratch]
        freed = [f"free(loop_{pointer});" for pointer in scratch]
        is_written = bool(facts["updates"]) or any(place in outputs.values() for place in places.values())
        if is_written and returns in ("int", "cudaError_t", "bool"):  # Outputs are written: a status.
            status = f"int loop_status = {'!' if returns == 'bool' else '(int)'}{call};"
            lines += [status, *freed, "if (loop_status) return 2;"]
        else:
            is_result = not is_written and returns in RESULTS
            lines += [f"*({returns} *)loop_data(&loop_out[0]) = {call};" if is_result else f"{call};", *freed]
        body = "".join(f"  {line}\n" for line in lines)
        memory = "scratch memory: zeros, 8 bytes for each element of all tensors, and 1 MiB"
        notes = [f"`{pointer.text}` is {memory}" for pointer in self.tensors if pointer.name in scratch]
        return GLUE.format(name=name, source=self.path.name, terms=TERMS, wants=wants, body=body), notes

    def _places(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, str]:
        """Pointer parameter to its tensor: `&loop_in[0]`, `&loop_out[0]` or `scratch`.

        Equal names match first. Other `const` pointers are inputs; surplus ones may be scratch memory.
        """
        places: dict[str, str] = {}
        several = f"there are {len(inputs)} inputs and {len(outputs)} outputs"
        for pointer in self.tensors:
            place = _same(pointer.name, inputs) or (None if pointer.is_const else outputs.get(pointer.name))
            if place and place not in places.values():
                places[pointer.name] = place
        if self.function.returns in RESULTS and all(pointer.is_const for pointer in self.tensors):
            outputs = {}
        to_read = [place for place in inputs.values() if place not in places.values()]
        to_write = [place for place in outputs.values() if place not in places.values()]
        unnamed = [pointer for pointer in self.tensors if pointer.name not in places]
        read = [pointer for pointer in unnamed if pointer.is_const]
        written = [pointer for pointer in unnamed if not pointer.is_const]
        unmarked = max(len(to_read) - len(read), 0)
        extra = max(len(written) - len(to_write) - unmarked, 0)
        scratch = [pointer for pointer in written if SCRATCH.fullmatch(pointer.name)][:extra]
        written = [pointer for pointer in written if pointer not in scratch]
        read, written = read + written[:unmarked], written[unmarked:]
        if len(read) != len(to_read) or len(written) != len(to_write):
            surplus = read[len(to_read) :] or written[len(to_write) :]
            clear = f"`{surplus[0].text}` is not clear" if surplus else "it has too few tensors"
            hint = "--like NAME=N,M for each input; mark inputs `const`, and call scratch memory scratch"
            raise self._unclear(f"{self.function.name}: {clear}: {several}", hint)
        names = [pointer.name for pointer in read + written]
        places |= dict(zip(names, to_read + to_write, strict=True))
        return places | dict.fromkeys((pointer.name for pointer in scratch), "scratch")

    def _argument(
        self, parameter: CParameter, places: Mapping[str, str], sizes: Mapping[str, str], facts: Mapping[str, Any]
    ) -> str:
        """The C expression for a parameter: stream, pointer, constant, attribute, size or count."""
        name, kind = parameter.name, f"{parameter.type} *" if parameter.pointers else parameter.type
        if parameter.type == STREAM or (parameter.type == "void" and "stream" in name.lower()):
            return f"({kind})loop_stream"
        if name in places:
            place = f"loop_{name}" if places[name] == "scratch" else f"loop_data({places[name]})"
            return f"({'const ' if parameter.is_const else ''}{kind}){place}"
        attributes = {name: f"({kind})loop_attributes[{n}]" for n, name in enumerate(facts["attributes"])}
        is_number = parameter in self.numbers
        expression = None
        if is_number and name in self.constants and name not in attributes:
            expression = json.dumps(self.constants[name])
        elif is_number and (name in attributes or parameter.dtype in FLOATING):
            expression = _same(name, attributes)
        elif is_number:
            whole = [n.name for n in self.numbers if n.dtype not in FLOATING and not _same(n.name, attributes)]
            is_alone = whole == [name] and [word.lower() for word in sizes] != [name.lower()]
            unknown = [word for word in whole if not _same(word, sizes)]
            expression = _same(name, sizes) or _same(name, attributes)
            if is_alone or (unknown == [name] and COUNT.fullmatch(name)):
                expression = f"loop_elements(&loop_in[0], {_number_of(facts['inputs'][0][2])})"
        if expression is None:
            wants = f"expected a pointer to elements for each tensor, and sizes called {' or '.join(sizes)}"
            hint = f"--set {name}=VALUE where it is a constant" if is_number else ""
            raise self._unclear(f"`{parameter.text}` of {self.function.name} is not clear; {wants}", hint)
        return expression

    def _unclear(self, what: str, hint: str = "") -> UsageError:
        write = f"change it, or write an entry: LOOP_EXPORT int {self.function.name.lower()}_entry({TERMS})"
        return UsageError(f"{self.path}:{self.function.line}: {what}", hint=hint or write)


def _number_of(dtype: str) -> str:
    """The constant of an element type in loop_kernel.h, as LOOP_FLOAT32; empty means float32."""
    name = {"float8_e4m3fn": "FLOAT8_E4M3"}.get(dtype, (dtype or "float32").upper())
    return f"LOOP_{name}"


def _same(name: str, known: Mapping[str, str]) -> str | None:
    """The value of a name, else of the only name that differs in case; None without one."""
    matches = [value for key, value in known.items() if key.lower() == name.lower()]
    return known.get(name) or (matches[0] if len(matches) == 1 else None)


ENTRY = re.compile(r"^[ \t]*LOOP_EXPORT\s+int\s+(\w+)\s*\(", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
HEADER = "loop kernels header prints the header that declares it"
SUCH = "a plain function such as `void scale(const float *x, float *y, int n)`"
BUILDS = {
    ".c": ("cpu", "gcc"),
    ".cc": ("cpu", "g++"),
    ".cpp": ("cpu", "g++"),
    ".cxx": ("cpu", "g++"),
    ".cu": ("cuda", "nvcc"),
}
"""Ending of a source to the device of the variant, and its compiler."""
HEAD_CXX20 = r"#[ \t]*include[ \t]*<(span|concepts|ranges|numbers|bit|barrier|latch)>|\bconcept\b|\brequires\b"
FLAGS = (
    (r"#[ \t]*pragma[ \t]+omp|#[ \t]*include[ \t]*<omp\.h>", "-fopenmp"),
    (r"#[ \t]*include[ \t]*<\w*intrin\.h>", "-march=native"),
    (HEAD_CXX20, "-std=c++20"),
    (r"#[ \t]*include[ \t]*<math\.h>", "-lm"),
)
"""Pattern in a source to the compiler flag that it requires."""


@dataclass(frozen=True)
class Start:
    """The variant of a new target, before the reference was tried."""

    function: str
    variant: str
    """Its line in target.yaml; empty if an entry is still to be written (`glue`)."""
    copied: Mapping[str, Path] = field(default_factory=dict)
    """File name in the target to the user's file."""
    scalars: tuple[str, ...] = ()
    """Names of its scalar parameters."""
    glue: Glue | None = None

    def bound(self, facts: Mapping[str, Any]) -> tuple[str, dict[str, str], list[str]]:
        """The variant's line in target.yaml, file name to text of a new entry, and notes on guesses.

        Raises UsageError if a parameter's meaning is unclear.
        """
        if self.glue is None:
            return self.variant, {}, []
        text, notes = self.glue.text(facts)
        path = self.glue.path
        name = f"entry{path.suffix}" if f"mine{path.suffix}" in self.copied else f"mine{path.suffix}"
        return _variant(path, name, "loop_entry", self.copied), {name: text}, notes


def of_source(path: Path, function: str, constants: Mapping[str, Any]) -> Start:
    """Read a C, C++ or CUDA file with its own headers; `function`: its kernel, empty: the only one.

    Raises UsageError if the file has no entry and `loop` can write none.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    files, text = _with_headers(path), without_comments(read_text(path))
    entries = ENTRY.findall(text)
    entry = function if function in entries else _chosen(entries, path.stem)
    if not entry:
        plain = _plain(path, text, function, entries)
        glue = Glue(path, plain, constants)
        numbers = tuple(number.name for number in glue.numbers)
        return Start(identifier(plain.name), "", files, numbers, glue)
    if not any("loop_error" in read_text(file) for file in files.values()):
        message = f"{path}: expected `LOOP_EXPORT const char *loop_error(int error)`, got none"
        raise UsageError(message, hint=HEADER)
    if entry != identifier(entry):
        raise UsageError(f"{path}: the entry {entry} needs small letters", hint=f"call it {identifier(entry)}")
    return Start(entry, _variant(path, path.name, entry, files), files)


def _plain(path: Path, text: str, function: str, entries: Sequence[str]) -> CFunction:
    """Choose a function with pointers: by name, the only one, by file name, or the uncalled one."""
    every = functions(text)
    plain = {f.name: f for f in every if any(p.pointers and p.dtype for p in f.parameters)}
    top = [candidate.name for candidate in uncalled([*plain.values()], text)]
    name = function or _chosen(plain, path.stem) or _chosen(top, path.stem)
    if name in plain:
        return plain[name]
    for candidate in () if plain else every:
        for parameter in candidate.parameters:
            if not parameter.dtype:
                message = f"`{parameter.text}` of {candidate.name} is no pointer to elements, and no number"
                hint = f"expected {SUCH}; or load it in Python, --from module:function"
                raise UsageError(f"{path}:{candidate.line}: {message}", hint=hint)
    wanted, several = f"`LOOP_EXPORT int {identifier(path.stem)}(...)`", [*entries] or [*plain]
    hint = f"name one of them: --from {path}:{several[0]}" if several else HEADER
    message = f"expected one exported entry {wanted}, or {SUCH}, got {', '.join(several) or 'none'}"
    raise UsageError(f"{path}: {message}", hint=hint)


def _chosen(names: Iterable[str], stem: str) -> str | None:
    """The only name, or else the one that equals the file's stem; None without one."""
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else next((name for name in distinct if name == stem), None)


def _variant(path: Path, source: str, entry: str, files: Mapping[str, Path]) -> str:
    """The line of a compiled variant in target.yaml, with the flags that its sources require."""
    device, compiler = BUILDS[path.suffix]
    flags = ["-O3", "'-arch={arch}'"]
    if compiler != "nvcc":
        text = "\n".join(without_comments(read_text(file)) for file in files.values())
        needed = [flag for pattern, flag in FLAGS if re.search(pattern, text)]
        flags = ["-O3", *(flag for flag in needed if not (path.suffix == ".c" and "std=" in flag))]
    build = f"{{compiler: {compiler}, flags: [{', '.join(flags)}]}}"
    return f"mine: {{kind: c_abi, device: {device}, sources: [{source}], entry: {entry}, build: {build}}}"


def _with_headers(path: Path) -> dict[str, Path]:
    """A source and the files that it includes from its folder, by path relative to that folder."""
    files: dict[str, Path] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        relative = str(file.relative_to(path.parent))
        if relative in files:
            continue
        files[relative] = file
        for name in INCLUDE.findall(read_text(file)):
            headers = [folder / name for folder in (file.parent, path.parent) if ".." not in Path(name).parts]
            waiting += [header for header in headers if header.is_file()][:1]
    return files


def identifier(name: str) -> str:
    """A lower-case identifier made of a name."""
    safe_name = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return safe_name if safe_name[0].isalpha() else f"of_{safe_name}"


@dataclass(frozen=True)
class Named:
    """The user's function or class, and where to find it."""

    module: str
    name: str
    folder: Path
    """Folder where its module is searched."""
    files: Mapping[str, Path]
    """Name in the target to the file to copy; empty for an installed package."""


def function_at(text: str) -> Named:
    """Find `module:function` as Python would from here; the module may be a file's path.

    Raises UsageError if there is none.
    """
    module, _, name = text.partition(":")
    folder = Path(module).parent.absolute() if "/" in module else Path.cwd()
    module = (Path(module).name if "/" in module else module).removesuffix(".py")
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        expected = f"expected module:function, or a file that ends in {', '.join(BUILDS)}"
        raise UsageError(f"{text}: {expected}", hint="loop init DIR --from torch:relu --like input=N,M")
    path = _found(module, folder)
    others = [Path(entry) for entry in sys.path if entry and Path(entry) != folder]
    if path is None or not path.is_relative_to(folder) or any(map(path.is_relative_to, others)):
        return Named(module, name, folder, {})  # Installed, or without Python source: nothing to copy.
    read, first = read_module(path), name.partition(".")[0]
    nodes = [node for node in read.tree.body if isinstance(node, ast.ImportFrom)]
    if not read.defines(first) and not any(alias.name == "*" for node in nodes for alias in node.names):
        known = [node.name for node in read.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        hint = did_you_mean(first, known) or f"it has {', '.join(known[:8]) or 'none'}"
        raise UsageError(f"{path}: no function `{first}` there", hint=hint)
    used = [file for file in files_of([module], folder) if file.endswith(".py")]
    return Named(module, name, folder, {file: folder / file for file in used})


def _found(module: str, folder: Path) -> Path | None:
    """A module's source file; None if it has none. Raises UsageError if there is no such module."""
    places: list[str] | None = [str(folder), *sys.path]
    whole, spec = "", None
    for word in module.split("."):
        whole = f"{whole}.{word}".lstrip(".")
        spec = PathFinder.find_spec(whole, places) if places is not None else None
        if spec is None:
            hint = f"start the command in the folder of {whole.partition('.')[0]}.py, or pip install it"
            raise UsageError(f"{module}: no module `{whole}` here or among the installed packages", hint=hint)
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations else None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    return path if path and path.suffix == ".py" else None
