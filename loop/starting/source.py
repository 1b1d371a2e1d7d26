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
from loop.formats.python_text import read_text
from loop.starting.c_text import CFunction, bare, functions, uncalled
from loop.starting.glue import Glue

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
COMPILE_S = 120


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
    glue: Glue | None = None

    def typed(self, likes: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        """Inputs with the types of its parameters, where no type is given."""
        types = self.glue.types([name for name in likes if name not in self.outputs]) if self.glue else {}
        own = {name: "" if dtype == "float32" else dtype for name, dtype in types.items()}
        return {
            name: [{**shape, "dtype": shape["dtype"] or own.get(name, "")} for shape in shapes]
            for name, shapes in likes.items()
        }

    def bound(self, facts: dict[str, Any]) -> "Start":
        """With an entry that gives a plain function the tensors that `facts` name. Raises UsageError."""
        if self.glue is None:
            return self
        if not facts["tried"] and not facts["outputs"]:
            facts["outputs"] = self.glue.outputs(facts["inputs"])
            facts["notes"].append(
                "outputs have the dimensions of the first input: mend `outputs` where that is not so"
            )
        text, notes = self.glue.text(facts)
        path = self.glue.path
        name = f"entry{path.suffix}" if f"mine{path.suffix}" in self.copied else f"mine{path.suffix}"
        _check(path, name, text, self.copied)
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
    if entry := function if function in entries else _chosen(entries, path.stem):
        return _exported(path, entry, files)
    plain = _plain(path, text, function, entries)
    glue = Glue(path, plain, constants)
    numbers = tuple(number.name for number in glue.numbers)
    return Start(identifier(plain.name), "", files, scalars=numbers, outputs=glue.written, glue=glue)


def _plain(path: Path, text: str, function: str, entries: Sequence[str]) -> CFunction:
    """The function with pointers that is named, alone, called as the file, or called by no other."""
    every = functions(text)
    plain = {f.name: f for f in every if any(p.pointers and p.dtype for p in f.parameters)}
    top = [candidate.name for candidate in uncalled([*plain.values()], text)]
    name = function or _chosen(plain, path.stem) or _chosen(top, path.stem)
    if name in plain:
        return plain[name]
    if not plain:
        _refuse_types(path, every)
    wanted, several = f"`LOOP_EXPORT int {identifier(path.stem)}(...)`", [*entries] or [*plain]
    hint = f"name one of them: --from {path}:{several[0]}" if several else HEADER
    message = f"expected one exported entry {wanted}, or {SUCH}, got {', '.join(several) or 'none'}"
    raise UsageError(f"{path}: {message}", hint=hint)


def _refuse_types(path: Path, every: Sequence[CFunction]) -> None:
    """Raise UsageError for the first parameter of a type that nothing is known of."""
    for function in every:
        for parameter in function.parameters:
            if not parameter.dtype:
                message = f"`{parameter.text}` of {function.name} is no pointer to elements, and no number"
                hint = f"expected {SUCH}; or load it in Python, --from module:function"
                raise UsageError(f"{path}:{function.line}: {message}", hint=hint)


def _chosen(names: Any, stem: str) -> str | None:
    """The only name, or that of the file."""
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else next((name for name in distinct if name == stem), None)


def _exported(path: Path, entry: str, files: Mapping[str, Path]) -> Start:
    if not any("loop_error" in read_text(file) for file in files.values()):
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
    text = "\n".join(bare(read_text(file)) for file in files.values())
    return [
        "-O3",
        *(
            flag
            for pattern, flag in FLAGS
            if re.search(pattern, text) and not (path.suffix == ".c" and "std=" in flag)
        ),
    ]


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
        message = (errors or done.stderr.splitlines() or ["it says nothing"])[0]
        raise UsageError(
            f"{path}: {compiler} refuses it: {message}", hint="mend that, or write an entry of your own; " + HEADER
        )


def _with_headers(path: Path) -> dict[str, Path]:
    """A source and what it includes from its own folder and below."""
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
    """A name for a function, in small letters."""
    safe_name = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "computed"
    return safe_name if safe_name[0].isalpha() else f"of_{safe_name}"
