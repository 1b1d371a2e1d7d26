"""`loop init` of a compiled kernel: its exported entry, or one that is written for a plain function.

Sources are read as text. The entry that is written is compiled once, for a mistake there is ours.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.base.places import include_folder
from loop.cli.starting_c import STREAM, CFunction, Parameter, bare, functions, uncalled
from loop.formats.python_text import read_text

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
    (
        r"#[ \t]*include[ \t]*<(span|concepts|ranges|numbers|bit|barrier|latch)>|\bconcept\b|\brequires\b",
        "-std=c++20",
    ),
    (r"#[ \t]*include[ \t]*<math\.h>", "-lm"),
)
"""What a source has, and the flag that it needs."""
TERMS = "const LoopTensor *loop_in, LoopTensor *loop_out, const double *loop_attributes, void *loop_stream"
SCRATCH = re.compile(r"(?i).*(scratch|work|tmp|temp|buf|ws|cache).*")
COUNT = re.compile(r"(?i)(n|len|length|size|count|total|numel|elements|num_elements|nelem|num)")
COMPILE_S = 120
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
    glued: "Glued | None" = None

    def typed(self, likes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        """Inputs with the types of its parameters, by name or in order, where no type is given."""
        found = {name: [dict(one) for one in shapes] for name, shapes in likes.items()}
        if self.glued is None:
            return found
        tensors = {one.name: one.dtype for one in self.glued.tensors}
        given = [one.dtype for one in self.glued.tensors if one.is_const] or [
            one.dtype for one in self.glued.tensors
        ]
        inputs = [name for name in found if name not in self.outputs]
        for name, shapes in found.items():
            place = inputs.index(name) if name in inputs else len(given)
            dtype = tensors.get(name) or (given[place] if place < len(given) else None)
            for one in shapes:
                one["dtype"] = one["dtype"] or ("" if dtype in (None, "float32") else dtype)
        return found

    def bound(self, facts: dict[str, Any]) -> "Start":
        """With an entry that gives a plain function the tensors that `facts` name. Raises UsageError."""
        return self if self.glued is None else self.glued.bound(self, facts)


def of_source(path: Path, function: str, constants: Mapping[str, Any]) -> Start:
    """A compiled kernel, with the headers beside it; `function`: which one, where it has several.

    Raises UsageError where it has no entry and none can be written for it.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    files, text = _with_headers(path), bare(read_text(path))
    entries = ENTRY.findall(text)
    if entry := function if function in entries else _chosen(entries, path.stem):
        return _exported(path, entry, files)
    every = functions(text)
    found = [one for one in every if any(each.pointers and each.dtype for each in one.parameters)]
    strange = next(((one, each) for one in every for each in one.parameters if not each.dtype), None)
    if strange and not found:
        said = f"`{strange[1].text}` of {strange[0].name} is no pointer to elements, and no number"
        raise UsageError(
            f"{path}:{strange[0].line}: {said}",
            hint=f"expected {SUCH}; or load it in Python, --from module:function",
        )
    plain = {one.name: one for one in found}
    name = function if function in plain else _chosen(plain, path.stem)
    name = name or _chosen([one.name for one in uncalled(found, text)], path.stem)
    if not name or (function and name != function):
        wanted, several = f"`LOOP_EXPORT int {identifier(path.stem)}(...)`", entries or [*plain]
        hint = f"name one of them: --from {path}:{several[0]}" if several else HEADER
        raise UsageError(
            f"{path}: expected one exported entry {wanted}, or {SUCH}, got {', '.join(several) or 'none'}",
            hint=hint,
        )
    glued = Glued(path, plain[name], tuple(sorted(constants.items())))
    return Start(
        identifier(name),
        "",
        files,
        scalars=tuple(one.name for one in glued.numbers),
        outputs=glued.written,
        glued=glued,
    )


def _chosen(names: Any, stem: str) -> str | None:
    """The only name, or that of the file."""
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else next((one for one in found if one == stem), None)


def _exported(path: Path, entry: str, files: Mapping[str, Path]) -> Start:
    if not any("loop_error" in read_text(one) for one in files.values()):
        raise UsageError(
            f"{path}: expected `LOOP_EXPORT const char *loop_error(int error)`, got none", hint=HEADER
        )
    if entry != identifier(entry):
        raise UsageError(f"{path}: the entry {entry} needs small letters", hint=f"call it {identifier(entry)}")
    return Start(entry, _variant(path, path.name, entry, files), files)


def _variant(path: Path, source: str, entry: str, files: Mapping[str, Path]) -> str:
    device, compiler = BUILDS[path.suffix]
    build = f"{{compiler: {compiler}, flags: [{', '.join(_flags(path, files))}]}}"
    return f"mine: {{kind: c_abi, device: {device}, sources: [{source}], entry: {entry}, build: {build}}}"


def _flags(path: Path, files: Mapping[str, Path]) -> list[str]:
    """Flags of its build: those that the sources cannot do without."""
    if path.suffix == ".cu":
        return ["-O3", "'-arch={arch}'"]
    text = "\n".join(bare(read_text(one)) for one in files.values())
    return [
        "-O3",
        *(
            flag
            for pattern, flag in FLAGS
            if re.search(pattern, text) and not (path.suffix == ".c" and "std=" in flag)
        ),
    ]


@dataclass(frozen=True)
class Glued:
    """A plain function for which an entry is written."""

    path: Path
    function: CFunction
    constants: tuple[tuple[str, Any], ...] = ()
    """Values of its parameters that the function that is right does not take."""

    @property
    def tensors(self) -> list[Parameter]:
        """Its pointers."""
        return [one for one in self.function.parameters if one.pointers == 1 and one.dtype]

    @property
    def numbers(self) -> list[Parameter]:
        """What it takes by value."""
        return [one for one in self.function.parameters if not one.pointers and one.dtype]

    @property
    def written(self) -> tuple[str, ...]:
        """Names of the tensors that it may write."""
        return tuple(one.name for one in self.tensors if not one.is_const)

    def bound(self, start: Start, facts: dict[str, Any]) -> Start:
        """The variant, with its entry. Raises UsageError for a parameter that is not clear."""
        if self.function.lacks:
            raise self._unclear(self.function.lacks)
        if self.path.suffix == ".cu" and not any(one.type == STREAM for one in self.function.parameters):
            raise UsageError(
                f"{self.path}:{self.function.line}: {self.function.name} does not say on which stream it launches",
                hint=f"give it a parameter `{STREAM} stream`, and launch on that",
            )
        self._guess_outputs(facts)
        places, notes = self._places(facts)
        arguments = [self._argument(one, places, facts) for one in self.function.parameters]
        text = self._glue(arguments, places, facts)
        name = (
            f"mine{self.path.suffix}"
            if f"mine{self.path.suffix}" not in start.copied
            else f"entry{self.path.suffix}"
        )
        _check(self.path, name, text, start.copied)
        variant = _variant(self.path, name, "loop_entry", start.copied)
        return replace(start, variant=variant, texts={name: text}, notes=tuple(notes))

    def _unclear(self, what: str, hint: str = "") -> UsageError:
        say = f"change it, or write an entry: LOOP_EXPORT int {identifier(self.function.name)}_entry({TERMS})"
        return UsageError(f"{self.path}:{self.function.line}: {what}", hint=hint or say)

    def _guess_outputs(self, facts: dict[str, Any]) -> None:
        """Where no function says what is right yet: one output for each tensor that is written, as the first input."""
        if facts["outputs"] or facts["tried"]:
            return
        inputs = facts["inputs"]
        names = {name for name, _, _ in inputs}
        others = [one for one in self.tensors if not one.is_const and one.name not in names]
        if len(others) > 1:
            others = [one for one in others if not SCRATCH.fullmatch(one.name)]
        if inputs and others and len(others) <= len(self.tensors) - len(inputs):
            facts["outputs"] = [
                (
                    one.name if len(others) > 1 else "output",
                    inputs[0][1],
                    "" if one.dtype == "float32" else one.dtype,
                )
                for one in others
            ]
            facts["notes"].append(
                "outputs have the dimensions of the first input: mend `outputs` where that is not so"
            )

    def _places(self, facts: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        """What each pointer is: `loop_in[0]`, `loop_out[0]` or scratch memory; and what was guessed."""
        inputs = {name: f"&loop_in[{n}]" for n, (name, _, _) in enumerate(facts["inputs"])}
        fresh = [name for name, _, _ in facts["outputs"] if name not in facts["updates"]]
        outputs = {name: f"&loop_out[{n}]" for n, name in enumerate(fresh)}
        tensors = self.tensors
        found: dict[str, str] = {}
        for one in tensors:
            lower = {name.lower(): name for name in inputs}
            name = one.name if one.name in inputs else lower.get(one.name.lower(), "")
            if name and inputs[name] not in found.values():
                found[one.name] = inputs[name]
        for one in tensors:
            if one.name in outputs and one.name not in found and not one.is_const:
                found[one.name] = outputs[one.name]
        left = [one for one in tensors if one.name not in found]
        free_inputs = [place for place in inputs.values() if place not in found.values()]
        free_outputs = [place for place in outputs.values() if place not in found.values()]
        constant, written = [one for one in left if one.is_const], [one for one in left if not one.is_const]
        notes, scratch = [], max(len(written) - len(free_outputs) - max(len(free_inputs) - len(constant), 0), 0)
        for one in [each for each in written if SCRATCH.fullmatch(each.name)][:scratch]:
            found[one.name] = "scratch"
            written.remove(one)
            notes.append(
                f"`{one.text}` is scratch memory: zeros, 8 bytes for each element of all tensors, and 1 MiB"
            )
        order = (
            constant + written[: len(free_inputs) - len(constant)]
            if len(free_inputs) > len(constant)
            else constant
        )
        rest = [one for one in written if one not in order]
        if len(order) != len(free_inputs) or len(rest) != len(free_outputs):
            raise self._mismatch(facts, order, free_inputs, rest, free_outputs)
        found |= {
            one.name: place for one, place in zip([*order, *rest], [*free_inputs, *free_outputs], strict=True)
        }
        return found, notes

    def _mismatch(
        self,
        facts: Mapping[str, Any],
        given: Sequence[Parameter],
        inputs: Sequence[str],
        rest: Sequence[Parameter],
        outputs: Sequence[str],
    ) -> UsageError:
        if len(given) > len(inputs):
            what = f"`{given[-1].text}` of {self.function.name} is not clear: there is no input for it"
            return self._unclear(what, f"give its sizes: --like {given[-1].name}=N,M")
        if len(rest) > len(outputs):
            what = f"`{rest[-1].text}` of {self.function.name} is not clear: what is right gives {len(facts['outputs'])} output(s)"
            return self._unclear(
                what, "mark inputs `const`, call scratch memory scratch, or give as many outputs in --reference"
            )
        return self._unclear(
            f"{self.function.name} has fewer tensors than there are inputs and outputs: {len(facts['inputs'])} and {len(facts['outputs'])}"
        )

    def _argument(self, one: Parameter, places: Mapping[str, str], facts: Mapping[str, Any]) -> str:
        """What a parameter is given."""
        if one.type == STREAM or (one.type == "void" and one.pointers and "stream" in one.name.lower()):
            return f"({one.type}{' *' if one.pointers else ''})loop_stream"
        if one.name in places:
            place = places[one.name]
            kind = f"{'const ' if one.is_const else ''}{one.type} *"
            return f"({kind})loop_{one.name}" if place == "scratch" else f"({kind})loop_data({place})"
        constants = dict(self.constants)
        if not one.pointers and one.name in constants and one.name not in facts["attributes"]:
            return (
                str(constants[one.name]).lower()
                if isinstance(constants[one.name], bool)
                else repr(constants[one.name])
            )
        found = None if one.pointers or not one.dtype else self._number(one, facts)
        if found is None:
            sizes = list(dict.fromkeys(word for _, dims, _ in facts["inputs"] for word in dims.split()))
            what = f"`{one.text}` of {self.function.name} is not clear; expected a pointer to elements for each tensor, and sizes called {' or '.join(sizes)}"
            value = f"--set {one.name}=VALUE where it is a constant" if not one.pointers and one.dtype else ""
            raise self._unclear(what, value)
        return found

    def _number(self, one: Parameter, facts: Mapping[str, Any]) -> str | None:
        """A size, an attribute, or how many elements the first input has."""
        attributes = {name: f"loop_attributes[{n}]" for n, name in enumerate(facts["attributes"])}
        by_name = _same(one.name, attributes)
        if by_name and (one.name in attributes or one.dtype in ("float32", "float64", "bool")):
            return f"({one.type}){by_name}"
        if one.dtype in ("float32", "float64", "bool"):
            return None
        sizes: dict[str, str] = {}
        for n, (_, dims, _) in enumerate(facts["inputs"]):
            for axis, word in enumerate(dims.split()):
                sizes.setdefault(word, f"loop_size(&loop_in[{n}], {axis})")
        for n, (_, dims, _) in enumerate(facts["outputs"]):
            for axis, word in enumerate((dims or "").split()):
                sizes.setdefault(word, f"loop_size(&loop_out[{n}], {axis})")
        whole = [
            each
            for each in self.numbers
            if each.dtype not in ("float32", "float64", "bool") and not _same(each.name, attributes)
        ]
        unknown = [each for each in whole if not _same(each.name, sizes)]
        dtype = facts["inputs"][0][2] or "float32" if facts["inputs"] else "float32"
        count = f"loop_elements(&loop_in[0], {_number_of(dtype)})"
        if (len(whole) == 1 and [word.lower() for word in sizes] != [one.name.lower()]) or (
            unknown == [one] and COUNT.fullmatch(one.name)
        ):
            return count
        return _same(one.name, sizes) or (f"({one.type}){by_name}" if by_name else None)

    def _glue(self, arguments: Sequence[str], places: Mapping[str, str], facts: Mapping[str, Any]) -> str:
        """The text of the entry."""
        lines, inputs = [], facts["inputs"]
        for n, (_, _, dtype) in enumerate(inputs):
            lines.append(f"if (loop_elements(&loop_in[{n}], {_number_of(dtype)}) < 0) return 1;")
        scratch = [name for name, place in places.items() if place == "scratch"]
        fresh = [one for one in facts["outputs"] if one[0] not in facts["updates"]]
        if scratch:
            every = [f"loop_elements(&loop_in[{n}], loop_in[{n}].dtype)" for n in range(len(inputs))]
            every += [f"loop_elements(&loop_out[{n}], loop_out[{n}].dtype)" for n in range(len(fresh))]
            lines.append(f"size_t loop_bytes = 8 * ({' + '.join(every)}) + (1 << 20);")
        lines += [f"void *loop_{name} = calloc(loop_bytes, 1);" for name in scratch]
        call, returns = f"{self.function.called}({', '.join(arguments)})", self.function.returns
        writes = [place for place in places.values() if place.startswith("&loop_out")]
        status = returns in ("int", "cudaError_t", "bool") and bool(writes or facts["updates"])
        if returns in ("float", "double") and not writes:
            lines.append(f"*({returns} *)loop_data(&loop_out[0]) = {call};")
        elif status:
            lines.append(f"int loop_status = (int){call};")
        else:
            lines.append(f"{call};")
        lines += [f"free(loop_{name});" for name in scratch]
        if status:
            lines.append(f"if ({'!' if returns == 'bool' else ''}loop_status) return 2;")
        types = ", ".join(dict.fromkeys(dtype or "float32" for _, _, dtype in inputs))
        return GLUE.format(
            name=self.function.name,
            source=self.path.name,
            terms=TERMS,
            wants=f"tensors must be contiguous {types}",
            body="".join(f"  {line}\n" for line in lines),
        )


def _number_of(dtype: str) -> str:
    """The name of a type in loop_kernel.h."""
    return f"LOOP_{(dtype or 'float32').upper()}"


def _same(name: str, known: Mapping[str, str]) -> str | None:
    """What is known by a name: in the same letters, or in others where that is clear."""
    if name in known:
        return known[name]
    found = [value for key, value in known.items() if key.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def _check(path: Path, name: str, text: str, files: Mapping[str, Path]) -> None:
    """Raise UsageError where the compiler refuses the entry, or the user's source. Without one nothing is said."""
    compiler = BUILDS[path.suffix][1]
    if compiler == "nvcc" or not shutil.which(compiler):
        return
    with tempfile.TemporaryDirectory(prefix="loop-init-") as folder:
        for relative, file in files.items():
            (Path(folder) / relative).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / relative).write_text(read_text(file))
        (Path(folder) / name).write_text(text)
        flags = [flag for flag in _flags(path, files) if not flag.startswith("-l")]
        command = [compiler, *flags, "-fsyntax-only", f"-I{include_folder()}", name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        said = (errors or done.stderr.splitlines() or ["it says nothing"])[0]
        raise UsageError(
            f"{path}: {compiler} refuses it: {said}", hint="mend that, or write an entry of your own; " + HEADER
        )


def _with_headers(path: Path) -> dict[str, Path]:
    """A source and what it includes from its own folder and below."""
    found: dict[str, Path] = {}
    waiting = [path]
    while waiting:
        one = waiting.pop()
        relative = str(one.relative_to(path.parent))
        if relative in found:
            continue
        found[relative] = one
        for name in INCLUDE.findall(read_text(one)):
            headers = [folder / name for folder in (one.parent, path.parent) if ".." not in Path(name).parts]
            waiting += [header for header in headers if header.is_file()][:1]
    return found


def identifier(name: str) -> str:
    """A name for a function, in small letters."""
    made = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return made if made[0].isalpha() else f"of_{made}"
