"""`loop init` of a compiled kernel: its exported entry, or one that is written for a plain function.

Sources are read as text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
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
HEAD_CXX20 = r"#[ \t]*include[ \t]*<(span|concepts|ranges|numbers|bit|barrier|latch)>|\bconcept\b|\brequires\b"
FLAGS = (
    (r"#[ \t]*pragma[ \t]+omp|#[ \t]*include[ \t]*<omp\.h>", "-fopenmp"),
    (r"#[ \t]*include[ \t]*<\w*intrin\.h>", "-march=native"),
    (HEAD_CXX20, "-std=c++20"),
    (r"#[ \t]*include[ \t]*<math\.h>", "-lm"),
)
"""What a source has, and the flag that it needs."""


@dataclass(frozen=True)
class Start:
    """What the variant is, before the function that is right was tried."""

    function: str
    variant: str
    """Its line in the manifest; empty where an entry is still to be written."""
    copied: Mapping[str, Path] = field(default_factory=dict)
    """Files of the user's, by their names in the target."""
    scalars: tuple[str, ...] = ()
    """Values that are no tensors and that it takes."""
    glue: Glue | None = None

    def bound(self, facts: Mapping[str, Any]) -> tuple[str, dict[str, str], list[str]]:
        """The variant's line; an entry that gives a plain function its tensors, by file name; what was guessed.

        Raises UsageError for a parameter that is not clear.
        """
        if self.glue is None:
            return self.variant, {}, []
        text, notes = self.glue.text(facts)
        path = self.glue.path
        name = f"entry{path.suffix}" if f"mine{path.suffix}" in self.copied else f"mine{path.suffix}"
        return _variant(path, name, "loop_entry", self.copied), {name: text}, notes


def of_source(path: Path, function: str, constants: Mapping[str, Any]) -> Start:
    """A compiled kernel, with the headers beside it; `function`: which one, where it has several.

    Raises UsageError where it has no entry and none can be written for it.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file", hint="loop init DIR --from file.cu --like x=N,M")
    files, text = _with_headers(path), bare(read_text(path))
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
    """The function with pointers that is named, alone, called as the file, or called by no other."""
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
    """The only name, or that of the file."""
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else next((name for name in distinct if name == stem), None)


def _variant(path: Path, source: str, entry: str, files: Mapping[str, Path]) -> str:
    """The line of a compiled variant, with the flags that its sources cannot do without."""
    device, compiler = BUILDS[path.suffix]
    flags = ["-O3", "'-arch={arch}'"]
    if compiler != "nvcc":
        text = "\n".join(bare(read_text(file)) for file in files.values())
        needed = [flag for pattern, flag in FLAGS if re.search(pattern, text)]
        flags = ["-O3", *(flag for flag in needed if not (path.suffix == ".c" and "std=" in flag))]
    build = f"{{compiler: {compiler}, flags: [{', '.join(flags)}]}}"
    return f"mine: {{kind: c_abi, device: {device}, sources: [{source}], entry: {entry}, build: {build}}}"


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
