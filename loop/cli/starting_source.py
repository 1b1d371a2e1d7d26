"""`loop init` of a compiled kernel: its exported entry, or one that is written for a plain function.

Sources are read as text. Nothing is compiled.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.errors import UsageError
from loop.formats.python_text import read_text

ENTRY = re.compile(r"^[ \t]*LOOP_EXPORT\s+int\s+(\w+)\s*\(", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
NOTE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
PLAIN = re.compile(r'(?:extern\s+"C"\s+)?void\s+(\w+)\s*\(([^()]*)\)\s*')
PARAMETER = re.compile(
    r"(?P<const>const )?(?P<type>float|int|unsigned|long|size_t|u?int\d\d_t|cudaStream_t) "
    r"(?P<star>\* )?(?:const )?(?:\w*restrict\w* )?(?P<name>\w+)"
)
SAME = {
    "unsigned int": "unsigned",
    "long long": "long",
    "long int": "long",
    "std::": "",
    "float const": "const float",
}
"""Spellings of a type, and what they are read as."""
STREAM = "cudaStream_t"
HEADER = "loop kernels header prints the header that declares it"
SUCH = "a plain function such as `void scale(const float *x, float *y, int n)`"
BUILDS = {
    ".c": ("cpu", "{compiler: gcc, flags: [-O3]}"),
    ".cc": ("cpu", "{compiler: g++, flags: [-O3]}"),
    ".cpp": ("cpu", "{compiler: g++, flags: [-O3]}"),
    ".cu": ("cuda", "{compiler: nvcc, flags: [-O3, '-arch={arch}']}"),
}
"""Ending of a source to the device of the variant, and how it is compiled."""
TERMS = "const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream"
GLUE = """\
/* Made by loop: gives `{name}` its tensors. Mend the call where loop guessed wrong. */
#include "loop_kernel.h"
#include "{source}"

/* Elements of a contiguous float32 tensor; -1 for any other. */
static int64_t loop_elements(const LoopTensor *one) {{
  int64_t count = 1;
  for (int i = one->rank - 1; i >= 0; count *= one->sizes[i--])
    if (one->sizes[i] > 1 && one->strides[i] != count) return -1;
  return one->dtype == LOOP_FLOAT32 ? count : -1;
}}

LOOP_EXPORT const char *loop_error(int error) {{ return error ? "tensors must be contiguous float32" : ""; }}

LOOP_EXPORT int loop_entry({terms}) {{
  (void)attributes, (void)stream;
  for (int i = 0; i < {inputs}; i++)
    if (loop_elements(&inputs[i]) < 0) return 1;
  {name}({arguments});
  return 0;
}}
"""


@dataclass(frozen=True)
class Start:
    """What the variant is, before shapes are known."""

    function: str
    variant: str
    copied: tuple[Path, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def of_source(path: Path, inputs: Mapping[str, str]) -> Start:
    """A compiled kernel, with the headers beside it. `inputs`: names of the dimensions of each.

    Raises UsageError where it has no entry and none can be written for it.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    files, text = tuple(_with_headers(path, set())), _bare(read_text(path))
    if entry := _chosen(ENTRY.findall(text), path.stem):
        return _exported(path, entry, files)
    plain = {one[1]: one[2] for one in map(PLAIN.fullmatch, _heads(text)) if one}
    if name := _chosen(plain, path.stem):
        glue = "mine" + path.suffix
        written = _glue(path, name, plain[name], inputs)
        return Start(identifier(name), _variant(path.suffix, glue, "loop_entry"), files, {glue: written})
    wanted, several = f"`LOOP_EXPORT int {identifier(path.stem)}({TERMS})`", ENTRY.findall(text) or [*plain]
    raise UsageError(
        f"{path}: expected one exported entry {wanted}, or {SUCH}, got {', '.join(several) or 'none'}",
        hint=f"call the file as one of them, such as {several[0]}{path.suffix}" if several else HEADER,
    )


def _bare(text: str) -> str:
    """A source with a space for each comment and each string but that of `extern "C"`."""
    return NOTE.sub(lambda one: one[0] if one[0] == '"C"' else " ", text)


def _heads(text: str) -> Iterator[str]:
    """What stands before each body that no other encloses but `extern "C"`: functions that any code may call."""
    head, depth = "", 0
    for part in re.findall(r"[{};]|[^{};]+", DIRECTIVE.sub("", text)):
        if part == "{" and depth == 0 and head.strip() == 'extern "C"':
            head = ""
        elif part == "{":
            if depth == 0:
                yield head.strip()
            depth += 1
        elif part in "};":
            depth -= part == "}" and depth > 0
            head = ""
        elif depth == 0:
            head += part


def _chosen(names: Iterable[str], stem: str) -> str | None:
    """The only name, or that of the file."""
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else next((one for one in found if one == stem), None)


def _exported(path: Path, entry: str, files: tuple[Path, ...]) -> Start:
    if not any("loop_error" in read_text(one) for one in files):
        raise UsageError(
            f"{path}: expected `LOOP_EXPORT const char *loop_error(int error)`, got none", hint=HEADER
        )
    if entry != identifier(entry):
        raise UsageError(f"{path}: the entry {entry} needs small letters", hint=f"call it {identifier(entry)}")
    return Start(entry, _variant(path.suffix, path.name, entry), files)


def _variant(suffix: str, source: str, entry: str) -> str:
    device, build = BUILDS[suffix]
    return f"mine: {{kind: c_abi, device: {device}, sources: [{source}], entry: {entry}, build: {build}}}"


def _glue(path: Path, name: str, parameters: str, inputs: Mapping[str, str]) -> str:
    """The source of an entry that calls a plain function. Raises UsageError for a parameter that is not clear."""
    texts = [_spelled(one) for one in parameters.split(",")]
    read = [one for one in map(PARAMETER.fullmatch, texts) if one]
    sizes = _sizes(inputs, read)
    known = {**_tensors(inputs, read), **sizes}
    streams = [one["name"] for one in read if not one["star"] and one["type"] == STREAM]
    known |= dict.fromkeys(streams, f"({STREAM})stream")
    arguments = [known.get(one.rpartition(" ")[2]) for one in texts]
    if None in arguments:
        raise UsageError(
            f"{path}: `{texts[arguments.index(None)]}` of {name} is not clear; expected `const float *` for each "
            f"--like, `float *` for the output, and sizes called {' or '.join(sizes)}",
            hint=f"change it, or write an entry: LOOP_EXPORT int {identifier(name)}_entry({TERMS})",
        )
    if path.suffix == ".cu" and not streams:
        said = f"{path}: {name} does not say on which stream it launches"
        raise UsageError(said, hint=f"give it a parameter `{STREAM} stream`, and launch on that")
    call = ", ".join(map(str, arguments))
    return GLUE.format(name=name, source=path.name, terms=TERMS, inputs=len(inputs), arguments=call)


def _spelled(parameter: str) -> str:
    """A parameter in one of the ways to write it."""
    text = " ".join(re.sub(r"(\w+)\s*\[\s*\]", r"* \1", parameter).replace("*", " * ").split())
    for one, same in SAME.items():
        text = text.replace(one, same)
    return text


def _sizes(inputs: Mapping[str, str], read: Iterable[re.Match[str]]) -> dict[str, str]:
    """Sizes by their names, in both cases; a single number that is no size of its own is the count of elements.

    Those of the first input: an output that sums it up has fewer.
    """
    found = {
        word: f"inputs[{n}].sizes[{at}]"
        for n, dimensions in enumerate(inputs.values())
        for at, word in enumerate(dimensions.lower().split())
    }
    numbers = [one["name"] for one in read if not one["star"] and one["type"] not in ("float", STREAM)]
    if len(numbers) == 1 and list(found) != [numbers[0].lower()]:
        return {numbers[0]: "loop_elements(&inputs[0])"}
    return found | {name: found[name.lower()] for name in numbers if name.lower() in found}


def _tensors(inputs: Mapping[str, str], read: Iterable[re.Match[str]]) -> dict[str, str]:
    """Constant tensors are inputs, by name or in order; the other is the output. Empty where that is not so."""
    tensors = [one for one in read if one["star"] and one["type"] == "float"]
    given = [one["name"] for one in tensors if one["const"]]
    output = [one["name"] for one in tensors if not one["const"]]
    if len(output) != 1 or len(given) != len(inputs):
        return {}
    order = list(inputs) if set(inputs) == set(given) else given
    return {
        output[0]: "(float *)outputs[0].data",
        **{one: f"(const float *)inputs[{order.index(one)}].data" for one in given},
    }


def _with_headers(path: Path, seen: set[Path]) -> Iterator[Path]:
    """A source and what it includes from its own folder."""
    seen.add(path)
    yield path
    for name in INCLUDE.findall(read_text(path)):
        header = path.parent / name
        if "/" not in name and header.is_file() and header not in seen:
            yield from _with_headers(header, seen)


def identifier(name: str) -> str:
    """A name for a function, in small letters."""
    made = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return made if made[0].isalpha() else f"of_{made}"
