"""`loop init` for a compiled kernel: find its exported entry, or write one for a C function."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.formats.model import read_text
from loop.starting.model import TensorSpec

SCRATCH_NAME = re.compile(r"(?i).*(scratch|work|tmp|temp|buf|ws|cache).*")
SCRATCH = "scratch"  # In place of a tensor: memory that a function needs for itself.
COUNT_NAME = re.compile(r"(?i)(n|len(gth)?|size|count|total|numel|(num_)?elements|nelem|num)")
ENTRY_TEXT = """\
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
  return loop_code == 1 ? "{message}" : loop_code == 2 ? "{name} returned an error" : "";
}}

LOOP_EXPORT int loop_entry(const LoopTensor *loop_in, LoopTensor *loop_out,
                           const double *loop_attributes, void *loop_stream) {{
  (void)loop_attributes, (void)loop_stream;
{body}  return 0;
}}
"""
FORMULA, WORD = re.compile(r"[\w\s+*/()-]+"), re.compile(r"[A-Za-z_]\w*")
"""A formula of sizes that `--set` may give for a number of a kernel, and a name in it."""
ENTRY = re.compile(r"^[ \t]*LOOP_EXPORT\s+int\s+(\w+)\s*\(", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
HEADER_HINT = "loop kernels header prints the header that declares it"
EXAMPLE = "a plain function such as `void scale(const float *x, float *y, int n)`"
CPP_BUILD = ("cpu", "g++", "-O3, -march=native, -fopenmp, -I., -std=c++20")
BUILD_BY_ENDING = {
    ".c": ("cpu", "gcc", "-O3, -march=native, -fopenmp, -I., -lm"),
    **dict.fromkeys((".cc", ".cpp", ".cxx"), CPP_BUILD),
    ".cu": ("cuda", "nvcc", "-O3, '-arch={arch}', -I., -Xptxas, -v"),
}
"""Ending of a source to the device of the variant, its compiler and flags."""
EMULATION_FLAGS = "-x, c++, -std=c++17, -O1, -march=native, -g1, -DLOOP_EMULATE, -pthread"
"""The recipe for the emulator, which runs only sources that include loop_device.cuh."""
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
"""A comment or a string."""
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
ALIASES = (
    re.compile(r"\busing\s+(?P<name>\w+)\s*=\s*(?P<type>[\w: ]+?)\s*;"),
    re.compile(r"\btypedef\s+(?P<type>[\w: ]+?)\s+(?P<name>\w+)\s*;"),
)
SIGNATURE = re.compile(
    r"(?P<template>template\s*<(?P<kinds>[^{};()]*?)>\s*)?(?P<before>[\w\s:*&<>,]*?[\s*&>])"
    r"(?P<name>\w+)\s*\((?P<parameters>[^{};]*)\)\s*(?:noexcept)?\s*"
)
TEMPLATE_INSTANCE = re.compile(r"\btemplate\s+(?!<)[\w\s:*&]*?\b([\w:]+)\s*<([^;(){}]*)>\s*\(")
OUTER_COMMA = re.compile(r",(?![^<(\[]*[>)\]])")
"""A comma outside brackets: none closes after it before another opens. `<` and `>` count, too."""
CALL = re.compile(r"\b(\w+)\s*(?:<[^;(){}]*>)?\s*\(")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace(?:\s+([\w:]+))?|extern \"C\"")
IGNORED = re.compile(
    r"\b(static|inline|extern|constexpr|__host__|__(force)?inline__|register|volatile|struct|"
    r"typename|(__)?restrict(__)?|RESTRICT|\w*_(API|EXPORT))\b|\"C\"|\[\[[^\]]*\]\]|"
    r"__attribute__\s*\(\(.*?\)\)"
)
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t, char, signed char",
    "uint8": "uint8_t, unsigned char, std::byte",
    "int16": "int16_t, short",
    "int32": "int, int32_t, signed, unsigned, unsigned int, uint32_t, signed int",
    "int64": "long, long long, int64_t, long int, long long int, size_t, ssize_t, ptrdiff_t, "
    "uint64_t, unsigned long, unsigned long long, intptr_t",
    "bool": "bool, _Bool",
    "float16": "half, __half, _Float16, at::Half, c10::Half",
    "bfloat16": "__nv_bfloat16, nv_bfloat16, __bf16, at::BFloat16, c10::BFloat16",
}
"""Element type of a tensor to the types in C that hold its elements."""
DTYPE_BY_C_TYPE = {name: dtype for dtype, names in C_TYPES.items() for name in names.split(", ")}
STREAM = "cudaStream_t"
CTexts = dict[str, str]  # Name of a tensor, size, attribute or parameter to its C expression.


@dataclass(frozen=True)
class CParameter:
    """One parameter of a function."""

    text: str  # The parameter's text in the source.
    type: str  # Type without `const`, pointers and qualifiers, with aliases resolved.
    name: str
    pointers: int
    is_const: bool  # Whether the caller's data stays: passed by value, or by a pointer to `const`.

    @property
    def dtype(self) -> str:
        """The element type; empty for a type that no tensor has."""
        return DTYPE_BY_C_TYPE.get(self.type, "")

    @property
    def cast(self) -> str:
        """The cast of an argument to its type."""
        const = "const " if self.is_const and self.pointers else ""
        return f"({const}{self.type}{' *' if self.pointers else ''})"

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number, passed by value: a size, a count or an attribute."""
        return not self.pointers and self.dtype not in ("", "float32", "float64", "bool")


@dataclass(frozen=True)
class CFunction:
    """A function that other code can call."""

    path: Path  # The file that defines it.
    name: str
    call_name: str  # The name with namespace and template arguments, for a call.
    returns: str  # The return type.
    parameters: tuple[CParameter, ...]
    line: int
    problem: str  # Why `loop` cannot call the function; empty if it can.

    @property
    def pointers(self) -> list[CParameter]:
        """Its pointer parameters to tensor elements."""
        return [each for each in self.parameters if each.pointers == 1 and each.dtype]

    @property
    def numbers(self) -> list[CParameter]:
        """Its numeric parameters, passed by value."""
        return [each for each in self.parameters if not each.pointers and each.dtype]

    def unclear(self, message: str, hint: str) -> UsageError:
        """The error at the function's line."""
        return UsageError(f"{self.path}:{self.line}: {message}", hint)


@dataclass(frozen=True)
class UserKernel:
    """The user's compiled kernel, which becomes the first variant of a target."""

    path: Path
    files: Mapping[str, Path]  # File name in the target to the user's file; its own source first.
    function: str  # Name of the target's function.
    source: str  # Name of the file to compile: the user's, or the one that `write_entry` makes.
    plain: CFunction | None
    """The function that an entry has to call; None if the source exports the entry `function`."""

    @property
    def yaml_line(self) -> str:
        """The variant's line in target.yaml."""
        device, compiler, flags = BUILD_BY_ENDING[self.path.suffix]
        includes = INCLUDE.findall("\n".join(map(read_text, self.files.values())))
        entry = "loop_entry" if self.plain else self.function
        build = f"{{compiler: {compiler}, flags: [{flags}]}}"
        if compiler == "nvcc" and "loop_device.cuh" in includes:
            build += f", emulation: {{flags: [{EMULATION_FLAGS}]}}"
        fields = f"sources: [{self.source}], entry: {entry}, build: {build}"
        return f"mine: {{kind: c_abi, device: {device}, {fields}}}"


def read_kernel(path: Path, function: str) -> UserKernel:
    """Read a C, C++ or CUDA file with its own headers. `function`: its kernel; empty: the only one.
    Raises UsageError without an entry that exists or can be made."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    text = TOKEN.sub(_to_spaces, read_text(path))
    files = _with_headers(path)
    entries = ENTRY.findall(text)
    entry = function if function in entries else _only_or_named(entries, path.stem)
    if not entry:
        plain = _plain_function(path, text, function, entries)
        stem = "entry" if f"mine{path.suffix}" in files else "mine"
        return UserKernel(path, files, identifier(plain.name), stem + path.suffix, plain)
    if not any("loop_error" in read_text(file) for file in files.values()):
        message = f"{path}: expected `LOOP_EXPORT const char *loop_error(int error)`, got none"
        raise UsageError(message, hint=HEADER_HINT)
    if entry != identifier(entry):
        hint = f"call it {identifier(entry)}"
        raise UsageError(f"{path}: the entry {entry} needs small letters", hint)
    return UserKernel(path, files, entry, path.name, None)


def _plain_function(path: Path, text: str, name: str, entries: Sequence[str]) -> CFunction:
    """Choose a C function that takes pointers: by `name`, the only one, that of the file's name, or
    the only one that the file never calls. `entries`: exported ones. Raises UsageError."""
    defined = functions(path, text)
    candidates: dict[str, CFunction] = {}
    for function in defined:
        if any(parameter.pointers and parameter.dtype for parameter in function.parameters):
            candidates[function.name] = function
    calls = CALL.findall(DIRECTIVE.sub("", text))  # They include the definition itself.
    uncalled = [candidate for candidate in candidates if calls.count(candidate) <= 1]
    name = name or _only_or_named(candidates, path.stem) or _only_or_named(uncalled, path.stem)
    if name in candidates and not candidates[name].problem:
        return candidates[name]
    suspects = [] if candidates else defined
    for function in [candidates[name]] if name in candidates else suspects:
        if function.problem:
            raise function.unclear(function.problem, "instantiate it in the file")
        for parameter in function.parameters:  # Of a suspect: a candidate here has a problem.
            if not parameter.dtype:
                problem = f"`{parameter.text}` of {function.name} is no pointer to elements"
                hint = f"expected {EXAMPLE}; or load it in Python, --from module:function"
                raise function.unclear(f"{problem}, and no number", hint)
    expected = f"`LOOP_EXPORT int {identifier(path.stem)}(...)`, or {EXAMPLE}"
    names = [*entries] or [*candidates]
    hint = f"name one of them: --from {path}:{names[0]}" if names else HEADER_HINT
    message = f"{path}: expected one exported entry {expected}, got {', '.join(names) or 'none'}"
    raise UsageError(message, hint)


def _only_or_named(names: Iterable[str], stem: str) -> str:
    """The only name, or else the one that equals the file's stem; empty without one."""
    distinct = {*names}
    if len(distinct) == 1:
        return distinct.pop()
    return stem if stem in distinct else ""


def _to_spaces(match: re.Match[str]) -> str:
    """Spaces in place of a match other than "C"; its line breaks stay, so that line numbers do."""
    return match[0] if match[0] == '"C"' else re.sub(r"[^\n]", " ", match[0])


def functions(path: Path, text: str) -> list[CFunction]:
    """Host functions with a body, outside classes, in order. `text`: the file's, no comments."""
    aliases = {each["name"]: each["type"] for pattern in ALIASES for each in pattern.finditer(text)}
    code = DIRECTIVE.sub(_to_spaces, text)
    instances: dict[str, list[str]] = {}  # Template to an instance's arguments: float is preferred.
    for match in TEMPLATE_INSTANCE.finditer(code):
        name = match[1].rpartition("::")[2]
        arguments = [part.strip() for part in match[2].split(",")]
        if name not in instances or arguments[0] == "float":
            instances[name] = arguments
    definitions = []
    for namespace, head, line in _heads(code):
        signature = SIGNATURE.fullmatch(" ".join(IGNORED.sub(" ", head).split()) or " ")
        if signature is None or re.search("__global__|__device__|operator", head):
            continue
        name, types, arguments, problem = signature["name"], aliases, list[str](), ""
        if signature["template"]:
            parts = signature["kinds"].split(",")
            kinds = [part.split("=")[0].split()[-1] for part in parts if part.strip()]
            arguments = instances.get(name, [])
            types = aliases | dict(zip(kinds, arguments, strict=False))
            if not arguments:
                example = f"template void {name}<float>(...);"
                problem = f"{name} is a template without instance: expected one, as `{example}`"
        texts = [part.strip() for part in OUTER_COMMA.split(signature["parameters"])]
        parameters = tuple(_parameter(part, types) for part in texts if part and part != "void")
        returned = _parameter(signature["before"] + " _", types)
        returns = f"{returned.type} *" if returned.pointers else returned.type
        call_name = namespace + name + (f"<{', '.join(arguments)}>" if arguments else "")
        definitions.append(CFunction(path, name, call_name, returns, parameters, line, problem))
    return definitions


def _parameter(text: str, types: Mapping[str, str]) -> CParameter:
    """Parse a parameter's text; `types`: alias or template parameter to its type."""
    as_pointer = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"*\1", text.split("=")[0].strip())  # x[] to *x
    named = re.fullmatch(r"(.*[\s*&])(\w+)", as_pointer)
    type_text, name = named.groups() if named else (as_pointer, "")
    for _ in range(4):  # An alias may name an alias.
        type_text = WORD.sub(lambda match: types.get(match[0], match[0]), type_text)
    plain_type = " ".join(re.sub(r"\bstd::|\bconst\b|\bstruct\b|\*", " ", type_text).split())
    pointers = type_text.count("*")
    is_const = not pointers or bool(re.match(r".*\bconst\b[^*]*\*", type_text))
    return CParameter(text, plain_type, name, pointers, is_const)


def _heads(text: str) -> Iterator[tuple[str, str, int]]:
    """Namespace, head (`void f(float *x)`) and line of each `{` body in namespaces or "C" only."""
    open_braces: list[str | None] = []
    """For each open brace: its namespace, or None for a body that is skipped."""
    head, line = "", 1
    for part in re.findall(r"[{};]|[^{};]+", text):
        if part == "{":
            namespace = NAMESPACE.fullmatch(" ".join(head.split()))
            if namespace is None and None not in open_braces:
                yield "".join(map(str, open_braces)), head.strip(), line - head.lstrip().count("\n")
            prefix = f"{namespace[1]}::" if namespace and namespace[1] else ""
            open_braces.append(None if namespace is None else prefix)
        elif part == "}":
            open_braces = open_braces[:-1]
        head = "" if part in "{};" else head + part
        line += part.count("\n")


def with_dtypes(likes: Mapping[str, TensorSpec], function: CFunction) -> dict[str, TensorSpec]:
    """The inputs; one without element type gets that of the C parameter of equal name, else in the
    same place. It stays empty for float32, the workload's type."""
    by_name = {pointer.name: pointer.dtype for pointer in function.pointers}
    const_dtypes = [pointer.dtype for pointer in function.pointers if pointer.is_const]
    by_place = dict(zip(likes, const_dtypes or by_name.values(), strict=False))
    typed: dict[str, TensorSpec] = {}
    for path, like in likes.items():
        c_type = by_name.get(path) or by_place.get(path, "")
        dtype = like.dtype or ("" if c_type == "float32" else c_type)
        typed[path] = like.model_copy(update={"dtype": dtype})
    return typed


def write_entry(
    function: CFunction,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    attributes: Iterable[str],
    constants: Mapping[str, Any],
    fixed_sizes: Mapping[str, int],
) -> tuple[str, list[str]]:
    """C source of the entry that calls a plain function, and notes on guessed numbers and scratch
    memory. Tensors match by name, else by order. `outputs`: without inputs changed in place;
    `attributes`: of the reference; `constants`: parameter to its `--set` value; `fixed_sizes`: size
    by the letter that loop chose for it. Raises UsageError where a parameter is unclear."""
    if function.path.suffix == ".cu" and STREAM not in [each.type for each in function.parameters]:
        message = f"{function.name} does not say on which stream it launches"
        raise function.unclear(message, f"give it `{STREAM} stream`, and launch on that")
    in_places = {tensor.name: f"loop_in[{n}]" for n, tensor in enumerate(inputs)}
    out_places = {tensor.name: f"loop_out[{n}]" for n, tensor in enumerate(outputs)}
    attribute_places = {name: f"loop_attributes[{n}]" for n, name in enumerate(attributes)}
    sizes: CTexts = {}  # By dimension, from the first tensor that has it.
    for tensor in inputs:
        for axis, dim in enumerate(tensor.dims):
            sizes.setdefault(dim, f"loop_size(&{in_places[tensor.name]}, {axis})")
    # The number of elements, for a count. Offsets count one more than what they divide.
    offsets = next((tensor for tensor in inputs if tensor.values == "sorted"), None)
    counted = offsets or inputs[0]
    elements: CTexts = {}  # By input, the number of its elements: below 0 for one of another type.
    for tensor in inputs:
        dtype = (tensor.dtype or "float32").removesuffix("fn").upper()  # As loop_kernel.h calls it.
        elements[tensor.name] = f"loop_elements(&{in_places[tensor.name]}, LOOP_{dtype})"
    count = elements[counted.name] + (" - 1" if offsets else "")
    places = _match_tensors(function, in_places, out_places)
    numbers = _match_numbers(function, sizes, attribute_places, constants, count)
    arguments: dict[str, str] = {}
    for parameter in function.parameters:
        name = parameter.name
        if parameter.type == STREAM or (parameter.type == "void" and "stream" in name.lower()):
            arguments[name] = f"{parameter.cast}loop_stream"
        elif name in places:
            place = f"loop_{name}" if places[name] == SCRATCH else f"loop_data(&{places[name]})"
            arguments[name] = parameter.cast + place
        elif name in numbers:
            arguments[name] = numbers[name]
    if unclear := [each for each in function.parameters if each.name not in arguments]:
        raise _what_is_unclear(function, unclear, inputs[0], sizes, fixed_sizes)
    lines = [f"if ({number} < 0) return 1;" for number in elements.values()]
    scratch = [pointer for pointer in function.pointers if places[pointer.name] == SCRATCH]
    tensors = (*in_places.values(), *out_places.values())
    total = " + ".join(f"loop_elements(&{tensor}, {tensor}.dtype)" for tensor in tensors)
    lines += [f"void *loop_{each.name} = calloc(8 * ({total}) + (1 << 20), 1);" for each in scratch]
    call, returns = f"{function.call_name}({', '.join(arguments.values())})", function.returns
    has_status = returns in ("int", "cudaError_t", "bool")  # 0, or true, is success.
    status = f"int loop_status = {'!' if returns == 'bool' else '(int)'}" if has_status else ""
    lines += [f"{status}{call};", *(f"free(loop_{pointer.name});" for pointer in scratch)]
    lines += ["if (loop_status) return 2;"] if has_status else []
    dtypes = dict.fromkeys(tensor.dtype or "float32" for tensor in inputs)
    text = ENTRY_TEXT.format(
        source=function.path.name,
        name=function.name,
        message=f"tensors must be contiguous {', '.join(dtypes)}",
        body="".join(f"  {line}\n" for line in lines),
    )
    memory = "scratch memory: zeros, 8 bytes for each element of all tensors, and 1 MiB"
    notes = [f"`{pointer.text}` is {memory}" for pointer in scratch]
    counted_text = f"the number of elements of {counted.name}{' less 1' if offsets else ''}"
    for name, expression in numbers.items():
        if expression == count:
            notes.append(f"{name} = {counted_text}; --set {name}=VALUE changes it")
    return text, notes


def _match_tensors(function: CFunction, inputs: CTexts, outputs: CTexts) -> CTexts:
    """Pointer parameter to its tensor: `loop_in[0]`, `loop_out[0]` or `SCRATCH`. Equal names match
    first. Of the others, surplus ones may be scratch memory, the last that are not `const` are
    outputs, and the rest inputs. Raises UsageError if a tensor is left."""
    counts = f"there are {len(inputs)} inputs and {len(outputs)} outputs"
    places: CTexts = {}
    for pointer in function.pointers:
        own_outputs = {} if pointer.is_const else outputs
        place = _by_name(pointer.name, inputs) or own_outputs.get(pointer.name)
        if place and place not in places.values():
            places[pointer.name] = place
    free_inputs = [place for place in inputs.values() if place not in places.values()]
    free_outputs = [place for place in outputs.values() if place not in places.values()]
    unnamed = [pointer for pointer in function.pointers if pointer.name not in places]
    surplus = max(len(unnamed) - len(free_inputs) - len(free_outputs), 0)
    writable = [pointer for pointer in unnamed if not pointer.is_const]
    scratch = [pointer for pointer in writable if SCRATCH_NAME.fullmatch(pointer.name)][:surplus]
    writable = [pointer for pointer in writable if pointer not in scratch]
    writers = writable[max(len(writable) - len(free_outputs), 0) :]
    readers = [pointer for pointer in unnamed if pointer not in (*writers, *scratch)]
    if len(readers) != len(free_inputs) or len(writers) != len(free_outputs):
        surplus_texts = [f"`{reader.text}` is not clear" for reader in readers[len(free_inputs) :]]
        reason = (surplus_texts or ["it has too few pointers"])[0]
        hint = "--like NAME=N,M for each input; mark inputs `const`; call scratch memory scratch; "
        hint += "give it a pointer for each output, also for one that it returns; "
        hint += "where it changes an input, let the reference change it, too, as `c += a @ b` does"
        raise function.unclear(f"{function.name}: {reason}: {counts}", hint)
    matched = zip(readers + writers, free_inputs + free_outputs, strict=True)
    places |= {pointer.name: place for pointer, place in matched}
    return places | {pointer.name: SCRATCH for pointer in scratch}


def _match_numbers(
    function: CFunction, sizes: CTexts, attributes: CTexts, constants: Mapping[str, Any], count: str
) -> CTexts:
    """Numeric parameter to its C expression: the value or formula of `--set`, `count`, a size or an
    attribute. Those without a meaning are left out. Raises UsageError for a wrong formula."""
    integers = [number.name for number in function.numbers if number.is_integer]
    unset = [name for name in integers if not _by_name(name, attributes)]
    unknown = [name for name in unset if not _by_name(name, sizes)]
    # The parameter that counts all elements: the only integer, if no size has its name, or if it is
    # called `n` among several sizes; else the only integer without a meaning, if called `n`.
    counter: str | None = None
    if len(unset) == 1 and (unknown or (len(sizes) > 1 and COUNT_NAME.fullmatch(unset[0]))):
        counter = unset[0]
    elif len(unknown) == 1 and COUNT_NAME.fullmatch(unknown[0]):
        counter = unknown[0]
    expressions: CTexts = {}
    for number in function.numbers:
        name, value = number.name, constants.get(number.name)
        size = _by_name(name, sizes) if number.is_integer and name not in attributes else None
        attribute = _by_name(name, attributes)
        if name in constants and name in sizes:
            hint = "give sizes of --like by number where one follows from another"
            raise function.unclear(f"--set {name}={value}: {name} is a size of --like", hint)
        if name in constants and name not in attributes:
            expressions[name] = json.dumps(value)
            if isinstance(value, str):  # A formula.
                if not FORMULA.fullmatch(value) or not {*WORD.findall(value)} <= sizes.keys():
                    expected = f"expected a number, or a formula of {', '.join(sizes)}"
                    hint = f"such as --set {name}={next(iter(sizes))}*2"
                    raise function.unclear(f"--set {name}={value}: {expected}", hint)
                expressions[name] = "(" + WORD.sub(lambda match: sizes[match[0]], value) + ")"
        elif name == counter:
            expressions[name] = count
        elif size:
            expressions[name] = size
        elif attribute:
            expressions[name] = number.cast + attribute
    return expressions


def _what_is_unclear(
    function: CFunction,
    unclear: Sequence[CParameter],
    tensor: TensorSpec,
    sizes: Iterable[str],
    fixed_sizes: Mapping[str, int],
) -> UsageError:
    """The error for unclear parameters. `tensor`: the first input; `sizes`: all dimensions;
    `fixed_sizes`: as in `write_entry`."""
    numbers = function.numbers
    options = " ".join(f"--set {number.name}=VALUE" for number in unclear if number in numbers)
    hint = f"{options}: a number, or a formula such as {'*'.join([*sizes][:2])}"
    # A guess: sizes in the order of the dimensions, if there are enough.
    number_names = [number.name.lower() for number in numbers]
    unnamed_dims = [dim for dim in tensor.dims if dim.lower() not in number_names]
    integers = [*dict.fromkeys(number.name.upper() for number in unclear if number.is_integer)]
    if unnamed_dims and len(integers) >= len(unnamed_dims):
        renamed = dict(zip(unnamed_dims, integers, strict=False))
        shape = ",".join(renamed.get(dim, dim) for dim in tensor.dims)
        hint = f"--like {tensor.name}={shape} where it is a size, {hint}"
    if others := [parameter for parameter in unclear if parameter not in numbers]:
        hint = f"take what `{others[0].type}` holds as parameters, or write an entry: {HEADER_HINT}"
    texts = ", ".join(f"`{parameter.text}`" for parameter in unclear)
    message = f"{texts} of {function.name} {'are' if unclear[1:] else 'is'} not clear"
    names = [f"{dim} ({fixed_sizes[dim]})" if dim in fixed_sizes else dim for dim in sizes]
    expected = f"expected a pointer for each tensor, and sizes called {' or '.join(names)}"
    return function.unclear(f"{message}; {expected}", hint)


def _by_name(name: str, values: Mapping[str, str]) -> str | None:
    """The value of a name, else of the only name that differs in case; None without one."""
    matches = [value for key, value in values.items() if key.lower() == name.lower()]
    return values.get(name) or (matches[0] if len(matches) == 1 else None)


def _with_headers(path: Path) -> dict[str, Path]:
    """A source and the files that it includes from its folder, by path relative to that folder."""
    files: dict[str, Path] = {}
    unread = [path]
    while unread:
        file = unread.pop()
        relative = str(file.relative_to(path.parent))
        if relative not in files:
            files[relative] = file
            for name in INCLUDE.findall(read_text(file)):
                headers = [] if ".." in name else [file.parent / name, path.parent / name]
                headers = [each for each in headers if each.is_relative_to(path.parent)]
                unread += [header for header in headers if header.is_file()][:1]
    return files


def sources_to_edit(sources: Iterable[str], folder: Path) -> list[str]:
    """Paths of a compiled variant's sources. One that includes other sources only wraps them, as an
    entry that `loop init` writes: these stand in its place. `folder`: the target's."""
    paths: list[Path] = []
    for source in sources:
        path = folder / source
        files = [*_with_headers(path).values()][1:] if path.is_file() else []
        paths += [file for file in files if file.suffix in BUILD_BY_ENDING] or [path]
    return [str(path) for path in dict.fromkeys(paths)]


def identifier(name: str) -> str:
    """A lower-case identifier made of a name: `of_` before a digit, `computed` if it is empty."""
    safe_name = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return safe_name if safe_name[0].isalpha() else f"of_{safe_name}"
