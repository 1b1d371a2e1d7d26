"""`loop init` of a compiled kernel: its exported entry, or an entry that is written for a plain function.

Sources are read as text. An entry gives a plain function its tensors, sizes and values, by name or in order. The
entry is compiled once, for a mistake there is ours.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.base.places import include_folder
from loop.formats.python_text import read_text

NOTE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
EXTERN = re.compile(r'extern\s+"C"\s*\{')
SIGNATURE = re.compile(
    r"(?P<returns>[\w\s:*&]*?[\s*&])(?P<name>\w+)\s*\((?P<parameters>[^{};]*)\)\s*(?:noexcept)?"
)
IGNORED = re.compile(
    r"\b(static|inline|extern|constexpr|__host__|__forceinline__|__inline__|register|volatile|struct|"
    r"__restrict__|__restrict|restrict|RESTRICT|\w*_API|\w*_EXPORT)\b|\"C\"|\[\[[^\]]*\]\]|__attribute__\s*\(\(.*?\)\)"
)
NOT_CALLED = re.compile(r"\b(template|__global__|__device__|operator|namespace)\b")
CALLED = re.compile(r"\b(\w+)\s*\(")
TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t|char|signed char",
    "uint8": "uint8_t|unsigned char",
    "int16": "int16_t|short",
    "int32": "int|int32_t|unsigned|unsigned int|uint32_t",
    "int64": "long|long long|int64_t|size_t|ssize_t|ptrdiff_t|uint64_t|unsigned long|unsigned long long",
    "bool": "bool|_Bool",
    "float16": "half|__half|_Float16",
    "bfloat16": "__nv_bfloat16|nv_bfloat16|__bf16",
}
"""Element type of a tensor to the types in C that hold its elements."""
DTYPES = {name: dtype for dtype, names in TYPES.items() for name in names.split("|")}
STREAM = "cudaStream_t"
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
FLAGS = (
    (r"#[ \t]*pragma[ \t]+omp|#[ \t]*include[ \t]*<omp\.h>", "-fopenmp"),
    (r"#[ \t]*include[ \t]*<\w*intrin\.h>", "-march=native"),
    (r"#[ \t]*include[ \t]*<(span|concepts|ranges|numbers|bit|barrier|latch)>", "-std=c++20"),
    (r"#[ \t]*include[ \t]*<math\.h>", "-lm"),
)
"""What a source has, and the flag that it needs."""
COMPILE_S = 120
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
"""Types that a function without an output among its parameters returns its only one in."""
FLOATING = ("float32", "float64", "bool")
"""Types of numbers that are no sizes."""
Facts = Mapping[str, Any]
"""What the program that tried the function says: `inputs`, `outputs`, `updates`, `attributes` and more."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function in C."""

    text: str
    """As it stands in the source."""
    type: str
    """Without `const`, pointers and qualifiers."""
    name: str
    pointers: int = 0
    is_const: bool = False
    """Of a pointer: whether what it points to is constant."""

    @property
    def dtype(self) -> str | None:
        """The element type; None for a type that no tensor has."""
        return DTYPES.get(self.type)


@dataclass(frozen=True)
class CFunction:
    """A function that other code can call."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    line: int

    @property
    def tensors(self) -> list[Parameter]:
        """Its pointers to elements."""
        return [one for one in self.parameters if one.pointers == 1 and one.dtype]

    @property
    def numbers(self) -> list[Parameter]:
        """What it takes by value."""
        return [one for one in self.parameters if not one.pointers and one.dtype]


def bare(text: str) -> str:
    """A source with spaces for each comment and each string but that of `extern "C"`, line by line."""
    return NOTE.sub(lambda note: note[0] if note[0] == '"C"' else _blank(note), text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def functions(text: str) -> list[CFunction]:
    """Functions with a body that neither a class nor a namespace encloses; `text`: a source without comments."""
    plain = EXTERN.sub(_blank, DIRECTIVE.sub(_blank, text))
    known = []
    depth = start = 0
    for mark in re.finditer(r"[{};]", plain):
        head = plain[start : mark.start()]
        if mark[0] == "{" and depth == 0 and not NOT_CALLED.search(head):
            read = SIGNATURE.fullmatch(" ".join(IGNORED.sub(" ", head).split()) or " ")
            if read is not None:
                line = plain.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
                texts = filter(None, map(str.strip, read["parameters"].split(",")))
                parameters = tuple(_parameter(one) for one in texts if one != "void")
                returns = " ".join(read["returns"].replace("const", " ").split())
                known.append(CFunction(read["name"], returns, parameters, line))
        depth = depth + 1 if mark[0] == "{" else max(0, depth - (mark[0] == "}"))
        start = mark.end()
    return known


def _parameter(text: str) -> Parameter:
    plain = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"*\1", text.split("=")[0].strip())
    is_const = not plain.count("*") or bool(re.match(r".*\bconst\b[^*]*\*|.*\w\s+const\s*\*", plain))
    words = re.sub(r"\bconst\b|\bstd::", " ", plain.replace("*", " ")).split()
    name = words[-1] if len(words) > 1 else ""
    return Parameter(text, " ".join(words[:-1] if name else words), name, plain.count("*"), is_const)


@dataclass(frozen=True)
class Start:
    """What the variant is, before the function that is right was tried."""

    function: str
    variant: str
    copied: Mapping[str, Path] = field(default_factory=dict)
    """Files of the user's, by their names in the target."""
    texts: Mapping[str, str] = field(default_factory=dict)
    scalars: tuple[str, ...] = ()
    """Values that are no tensors and that it takes."""
    outputs: tuple[str, ...] = ()
    """Tensors that it writes: `--like` may name their sizes."""
    notes: tuple[str, ...] = ()
    entry: "Entry | None" = None

    def typed(self, likes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        """Inputs with the types of its parameters, where no type is given."""
        types = self.entry.types([name for name in likes if name not in self.outputs]) if self.entry else {}
        own = {name: "" if dtype == "float32" else dtype for name, dtype in types.items()}
        return {
            name: [{**shape, "dtype": shape["dtype"] or own.get(name, "")} for shape in shapes]
            for name, shapes in likes.items()
        }

    def bound(self, facts: dict[str, Any]) -> "Start":
        """With an entry that gives a plain function the tensors that `facts` name. Raises UsageError."""
        if self.entry is None:
            return self
        if not facts["tried"] and not facts["outputs"]:
            facts["outputs"] = self.entry.outputs(facts["inputs"])
            guess = "outputs have the dimensions of the first input: mend `outputs` where that is not so"
            facts["notes"].append(guess)
        text, notes = self.entry.text(facts)
        path = self.entry.path
        name = f"entry{path.suffix}" if f"mine{path.suffix}" in self.copied else f"mine{path.suffix}"
        _compile(path, name, text, self.copied)
        variant = _variant(path, name, "loop_entry", self.copied)
        return replace(self, variant=variant, texts={name: text}, notes=tuple(notes))


def of_source(path: Path, function: str, constants: Mapping[str, Any]) -> Start:
    """A compiled kernel, with the headers beside it; `function`: which one, where it has several.

    Raises UsageError where it has no entry and none can be written for it.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    files, text = _with_headers(path), bare(read_text(path))
    entries = ENTRY.findall(text)
    if name := function if function in entries else _chosen(entries, path.stem):
        if not any("loop_error" in read_text(file) for file in files.values()):
            raise UsageError(
                f"{path}: expected `LOOP_EXPORT const char *loop_error(int error)`, got none", hint=HEADER
            )
        if name != identifier(name):
            raise UsageError(f"{path}: the entry {name} needs small letters", hint=f"call it {identifier(name)}")
        return Start(name, _variant(path, path.name, name, files), files)
    entry = Entry(path, _plain(path, text, function, entries), constants)
    numbers = tuple(one.name for one in entry.function.numbers)
    name = identifier(entry.function.name)
    return Start(name, "", files, scalars=numbers, outputs=entry.written, entry=entry)


def _plain(path: Path, text: str, function: str, entries: Sequence[str]) -> CFunction:
    """The function with pointers that is named, alone, called as the file, or called by no other."""
    every = functions(text)
    plain = {one.name: one for one in every if one.tensors}
    calls = CALLED.findall(DIRECTIVE.sub("", text))
    uncalled = [name for name in plain if calls.count(name) <= 1]
    name = function or _chosen(plain, path.stem) or _chosen(uncalled, path.stem)
    if name in plain:
        return plain[name]
    for one in every if not plain else ():
        for parameter in one.parameters:
            if not parameter.dtype:
                what = f"`{parameter.text}` of {one.name} is no pointer to elements, and no number"
                hint = f"expected {SUCH}; or load it in Python, --from module:function"
                raise UsageError(f"{path}:{one.line}: {what}", hint=hint)
    wanted, several = f"`LOOP_EXPORT int {identifier(path.stem)}(...)`", [*entries] or [*plain]
    hint = f"name one of them: --from {path}:{several[0]}" if several else HEADER
    expected = f"expected one exported entry {wanted}, or {SUCH}, got {', '.join(several) or 'none'}"
    raise UsageError(f"{path}: {expected}", hint=hint)


def _chosen(names: Iterable[str], stem: str) -> str | None:
    """The only name, or that of the file."""
    different = list(dict.fromkeys(names))
    return different[0] if len(different) == 1 else stem if stem in different else None


def _variant(path: Path, source: str, entry: str, files: Mapping[str, Path]) -> str:
    device, compiler = BUILDS[path.suffix]
    build = f"{{compiler: {compiler}, flags: [{', '.join(_flags(path, files))}]}}"
    return f"mine: {{kind: c_abi, device: {device}, sources: [{source}], entry: {entry}, build: {build}}}"


def _flags(path: Path, files: Mapping[str, Path]) -> list[str]:
    """Flags of its build: those that the sources cannot do without."""
    if path.suffix == ".cu":
        return ["-O3", "'-arch={arch}'"]
    text = "\n".join(bare(read_text(file)) for file in files.values())
    needed = (flag for pattern, flag in FLAGS if re.search(pattern, text))
    return ["-O3", *(flag for flag in needed if not (path.suffix == ".c" and "std=" in flag))]


def _compile(path: Path, name: str, text: str, files: Mapping[str, Path]) -> None:
    """Raise UsageError where the compiler refuses the entry, or the user's source. Without one nothing is said."""
    compiler = BUILDS[path.suffix][1]
    if compiler == "nvcc" or not shutil.which(compiler):
        return
    with tempfile.TemporaryDirectory(prefix="loop-init-") as folder:
        for relative, content in {**{key: read_text(file) for key, file in files.items()}, name: text}.items():
            (Path(folder) / relative).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / relative).write_text(content)
        flags = [flag for flag in _flags(path, files) if not flag.startswith("-l")]
        command = [compiler, *flags, "-fsyntax-only", f"-I{include_folder()}", name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        first = (errors or done.stderr.splitlines() or ["it says nothing"])[0]
        hint = "mend that, or write an entry of your own; " + HEADER
        raise UsageError(f"{path}: {compiler} refuses it: {first}", hint=hint)


def _with_headers(path: Path) -> dict[str, Path]:
    """A source and what it includes from its own folder and below."""
    files: dict[str, Path] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        relative = str(file.relative_to(path.parent))
        if relative not in files:
            files[relative] = file
            for name in INCLUDE.findall(read_text(file)):
                headers = [folder / name for folder in (file.parent, path.parent) if ".." not in Path(name).parts]
                waiting += [header for header in headers if header.is_file()][:1]
    return files


def identifier(name: str) -> str:
    """A name for a function, in small letters."""
    made = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return made if made[0].isalpha() else f"of_{made}"


@dataclass(frozen=True)
class Entry:
    """The entry that is written for a plain function."""

    path: Path
    function: CFunction
    constants: Mapping[str, Any]
    """Values of its parameters that the function that is right does not take."""

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the tensors that it may write."""
        return tuple(one.name for one in self.function.tensors if not one.is_const)

    def types(self, inputs: Sequence[str]) -> dict[str, str]:
        """The element type of each input by the parameter of its name, else in order."""
        own = {one.name: one.dtype or "" for one in self.function.tensors}
        in_order = [one.dtype or "" for one in self.function.tensors if one.is_const] or list(own.values())
        return {name: own.get(name) or (in_order[n] if n < len(in_order) else "") for n, name in enumerate(inputs)}

    def outputs(self, inputs: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Where no function says what is right yet: one for each tensor that is written, as the first input."""
        taken = {name for name, _, _ in inputs}
        fresh = [one for one in self.function.tensors if not one.is_const and one.name not in taken]
        fresh = fresh[-max(len(self.function.tensors) - len(inputs), 0) :] if len(fresh) > 1 else fresh
        if len(fresh) > 1:
            fresh = [one for one in fresh if not SCRATCH.fullmatch(one.name)]
        names = [one.name for one in fresh] if len(fresh) > 1 else ["output"]
        types = ["" if one.dtype == "float32" else one.dtype or "" for one in fresh]
        return [(name, inputs[0][1], dtype) for name, dtype in zip(names, types, strict=False)]

    def text(self, facts: Facts) -> tuple[str, list[str]]:
        """The source of the entry, and what was guessed. Raises UsageError for a parameter that is not clear."""
        name = self.function.name
        if self.path.suffix == ".cu" and not any(one.type == STREAM for one in self.function.parameters):
            hint = f"give it a parameter `{STREAM} stream`, and launch on that"
            raise self._unclear(f"{name} does not say on which stream it launches", hint)
        places, notes = self._places(facts)
        call = ", ".join(self._argument(one, places, facts) for one in self.function.parameters)
        types = dict.fromkeys(dtype or "float32" for _, _, dtype in facts["inputs"])
        body = "".join(f"  {line}\n" for line in self._body(call, places, facts))
        wants = f"tensors must be contiguous {', '.join(types)}"
        return GLUE.format(name=name, source=self.path.name, terms=TERMS, wants=wants, body=body), notes

    def _unclear(self, what: str, hint: str = "") -> UsageError:
        write = f"change it, or write an entry: LOOP_EXPORT int {self.function.name.lower()}_entry({TERMS})"
        return UsageError(f"{self.path}:{self.function.line}: {what}", hint=hint or write)

    def _places(self, facts: Facts) -> tuple[dict[str, str], list[str]]:
        """What each pointer is: `&loop_in[0]`, `&loop_out[0]` or `scratch`, by name, by `const`, then in order."""
        inputs, outputs = _inputs(facts), _outputs(facts)
        places: dict[str, str] = {}
        for one in self.function.tensors:
            place = _same(one.name, inputs) or (None if one.is_const else outputs.get(one.name))
            if place and place not in places.values():
                places[one.name] = place
        if self.function.returns in RESULTS and not self.written:
            outputs = {}
        to_give, to_write = (
            [p for p in every.values() if p not in places.values()] for every in (inputs, outputs)
        )
        left = [one for one in self.function.tensors if one.name not in places]
        given, written = [one for one in left if one.is_const], [one for one in left if not one.is_const]
        unmarked = max(len(to_give) - len(given), 0)
        extra = max(len(written) - len(to_write) - unmarked, 0)
        scratch = [one for one in written if SCRATCH.fullmatch(one.name)][:extra]
        written = [one for one in written if one not in scratch]
        given, written = given + written[:unmarked], written[unmarked:]
        if len(given) != len(to_give) or len(written) != len(to_write):
            raise self._mismatch(facts, given[len(to_give) :], written[len(to_write) :])
        places |= {one.name: p for one, p in zip(given + written, to_give + to_write, strict=True)}
        places |= dict.fromkeys((one.name for one in scratch), "scratch")
        size = "zeros, 8 bytes for each element of all tensors, and 1 MiB"
        return places, [f"`{one.text}` is scratch memory: {size}" for one in scratch]

    def _mismatch(self, facts: Facts, given: Sequence[Parameter], written: Sequence[Parameter]) -> UsageError:
        """What is said of tensors that are neither inputs nor outputs."""
        name, several = self.function.name, len(facts["outputs"])
        if given:
            what = f"`{given[0].text}` of {name} is not clear: there is no input for it"
            return self._unclear(what, f"give its sizes: --like {given[0].name}=N,M")
        if written:
            what = f"`{written[0].text}` of {name} is not clear: what is right gives {several} outputs"
            return self._unclear(
                what, "mark inputs `const`, call scratch memory scratch, or have --reference give as many"
            )
        counts = f"{len(facts['inputs'])} and {several}"
        return self._unclear(f"{name} has fewer tensors than there are inputs and outputs: {counts}")

    def _argument(self, one: Parameter, places: Mapping[str, str], facts: Facts) -> str:
        """What a parameter is given."""
        kind = f"{one.type} *" if one.pointers else one.type
        if one.type == STREAM or (one.type == "void" and "stream" in one.name.lower()):
            return f"({kind})loop_stream"
        if one.name in places:
            place = f"loop_{one.name}" if places[one.name] == "scratch" else f"loop_data({places[one.name]})"
            return f"({'const ' if one.is_const else ''}{kind}){place}"
        is_number = not one.pointers and one.dtype
        if is_number and one.name in self.constants and one.name not in facts["attributes"]:
            return json.dumps(self.constants[one.name])
        value = self._number(one, facts) if is_number else None
        if value is None:
            sizes = " or ".join(_sizes(facts))
            wants = f"expected a pointer to elements for each tensor, and sizes called {sizes}"
            hint = f"--set {one.name}=VALUE where it is a constant" if is_number else ""
            raise self._unclear(f"`{one.text}` of {self.function.name} is not clear; {wants}", hint)
        return value

    def _number(self, one: Parameter, facts: Facts) -> str | None:
        """A size, an attribute, or how many elements the first input has."""
        attributes = {name: f"({one.type})loop_attributes[{n}]" for n, name in enumerate(facts["attributes"])}
        if one.name in attributes or one.dtype in FLOATING:
            return _same(one.name, attributes)
        sizes = _sizes(facts)
        whole = [each.name for each in self.function.numbers if each.dtype not in FLOATING]
        whole = [name for name in whole if not _same(name, attributes)]
        is_alone = whole == [one.name] and [word.lower() for word in sizes] != [one.name.lower()]
        unknown = [name for name in whole if not _same(name, sizes)]
        if is_alone or (unknown == [one.name] and COUNT.fullmatch(one.name)):
            return f"loop_elements(&loop_in[0], {_dtype_constant(facts['inputs'][0][2])})"
        return _same(one.name, sizes) or _same(one.name, attributes)

    def _body(self, arguments: str, places: Mapping[str, str], facts: Facts) -> Iterator[str]:
        """The lines of the entry."""
        for n, (_, _, dtype) in enumerate(facts["inputs"]):
            yield f"if (loop_elements(&loop_in[{n}], {_dtype_constant(dtype)}) < 0) return 1;"
        scratch = [name for name, place in places.items() if place == "scratch"]
        every = [place[1:] for place in (*_inputs(facts).values(), *_outputs(facts).values())]
        count = " + ".join(f"loop_elements(&{place}, {place}.dtype)" for place in every)
        yield from (f"void *loop_{name} = calloc(8 * ({count}) + (1 << 20), 1);" for name in scratch)
        call, returns = f"{self.function.name}({arguments})", self.function.returns
        freed = [f"free(loop_{name});" for name in scratch]
        is_written = bool(facts["updates"]) or any(place.startswith("&loop_out") for place in places.values())
        if is_written and returns in ("int", "cudaError_t", "bool"):
            yield f"int loop_status = {'!' if returns == 'bool' else '(int)'}{call};"
            yield from (*freed, "if (loop_status) return 2;")
            return
        if not is_written and returns in RESULTS:
            call = f"*({returns} *)loop_data(&loop_out[0]) = {call}"
        yield from (f"{call};", *freed)


def _inputs(facts: Facts) -> dict[str, str]:
    return {name: f"&loop_in[{n}]" for n, (name, _, _) in enumerate(facts["inputs"])}


def _outputs(facts: Facts) -> dict[str, str]:
    """Those that are no inputs changed in place."""
    fresh = [name for name, _, _ in facts["outputs"] if name not in facts["updates"]]
    return {name: f"&loop_out[{n}]" for n, name in enumerate(fresh)}


def _sizes(facts: Facts) -> dict[str, str]:
    """Each size by name, as the first tensor that has it gives it."""
    fresh = [output for output in facts["outputs"] if output[0] not in facts["updates"]]
    sizes: dict[str, str] = {}
    for place, tensors in (("loop_in", facts["inputs"]), ("loop_out", fresh)):
        for n, (_, dims, _) in enumerate(tensors):
            for axis, word in enumerate((dims or "").split()):
                sizes.setdefault(word, f"loop_size(&{place}[{n}], {axis})")
    return sizes


def _dtype_constant(dtype: str) -> str:
    """The name of a type in loop_kernel.h."""
    return "LOOP_FLOAT8_E4M3" if dtype == "float8_e4m3fn" else f"LOOP_{(dtype or 'float32').upper()}"


def _same(name: str, known: Mapping[str, str]) -> str | None:
    """What is known by a name: in the same letters, or in others where that is clear."""
    alike = [value for key, value in known.items() if key.lower() == name.lower()]
    return known.get(name) or (alike[0] if len(alike) == 1 else None)
