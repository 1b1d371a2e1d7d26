"""What a build read: the files that the toolchain lists, and paths where another file would be found first.

- The preprocessor lists sources and headers (`-M`).
- The assembler lists what `.incbin` and `.include` name (`--MD`).
- The linker lists objects, archives and scripts (`--dependency-file`).
- `ldd` lists the libraries that are loaded.
- Flags name more files.

A header or library that appears earlier on a search path of the flags or the environment is noticed. One that
appears on the compiler's own path is not, nor what `__DATE__`, `dlopen` or a script of the target's brings in: use
`loop clean --cache` then.

A fact is what one path was. It holds while stat(2) or the content says the same.
"""

import functools
import os
import re
import shutil
import stat
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from loop.base.documents import content_hash
from loop.base.processes import Tick, run
from loop.library.response_files import named_by
from loop.model.target import CAbiVariant

NOTHING, OTHER = "nothing", "other"
"""Content of a missing path, and of a path that is no regular file."""
SEEN = (
    "PATH", "HOME", "TMPDIR", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH",
    "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""Variables that change what a compiler makes."""
ENGLISH = {"LC_ALL": "C"}
"""Environment of a tool whose messages `loop` reads."""
HEADERS, LIBRARIES = ("-I", "-iquote", "-isystem", "-idirafter"), ("-L",)
"""Flags that name folders in which headers and libraries are looked for."""
LIMIT_S = 60.0

Signature = list[int] | None


class Fact(NamedTuple):
    """What one path was."""

    content: str
    """`nothing`, `other`, or the hash of a file's bytes."""
    signature: Signature
    """What stat(2) says of it: mode, size, times of change, number and device; None where there is nothing."""


Facts = Mapping[str, Fact]
"""By path, relative to the variant's folder where possible."""


class Changed(Exception):
    """A file changed while it was compiled, so it is unknown which content was read."""


def signature(path: str) -> Signature:
    """What stat(2) says of a path; None where there is nothing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return [status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def fact_of(path: str) -> Fact:
    """What a path is now."""
    now = signature(path)
    return Fact(NOTHING if now is None else content_of(path, tuple(now)), now)


@functools.lru_cache(maxsize=1 << 14)
def content_of(path: str, now: tuple[int, ...]) -> str:
    """Hash of a file's bytes, computed once for each result of stat(2); `other` for what is no file."""
    try:
        return content_hash(Path(path).read_bytes()) if stat.S_ISREG(now[0]) else OTHER
    except OSError:
        return OTHER


def facts_of(paths: Iterable[str], folder: Path, output: Path) -> dict[str, Fact]:
    """Facts of what was listed while `output` was built; its own files do not count."""
    names = dict.fromkeys(name for path in paths if (name := named(path, folder, output)))
    return {name: fact_of(os.path.join(folder, name)) for name in names}


def named(path: str, folder: Path, output: Path) -> str | None:
    """The name of a path in facts, relative where it lies in the folder; None for our own files and devices."""
    if not os.path.isabs(path):
        return os.path.normpath(path)
    if path.startswith(("/dev/", "/proc/")) or any(
        is_below(path, own) for own in (str(output), str(output.resolve()))
    ):
        return None
    for own in (str(folder), str(folder.resolve())):
        if is_below(path, own):
            return os.path.relpath(path, own)
    return path


def is_below(path: str, folder: str) -> bool:
    """Whether a path is that of a folder or of something in it, by its text."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def hold(facts: Facts, base: Path) -> bool:
    """Whether everything is unchanged; relative paths start at `base`."""
    for name, fact in facts.items():
        path = os.path.join(base, name)
        now = signature(path)
        if now != fact.signature and (NOTHING if now is None else content_of(path, tuple(now))) != fact.content:
            return False
    return True


def listed(facts: Facts) -> dict[str, list[Any]]:
    """Facts for JSON."""
    return {name: list(fact) for name, fact in facts.items()}


def read_back(stored: Mapping[str, list[Any]]) -> dict[str, Fact]:
    """Facts from JSON, files of the folder first: these change most often."""
    names = sorted(stored, key=lambda name: (name.startswith("/"), stored[name][1] is None))
    return {name: Fact(*stored[name]) for name in names}


def identity(facts: Facts, include: Path) -> list[str]:
    """Names and contents of all existing files, for a hash that does not depend on the folder's place."""
    rows = (
        (name.replace(str(include), "loop", 1) if is_below(name, str(include)) else name, fact.content)
        for name, fact in facts.items()
        if fact.content not in (NOTHING, OTHER)
    )
    return [text for row in sorted(rows) for text in row]


def dependencies(rule: str) -> list[str]:
    """Files named on the right of make's rules, as `-M` and a linker print them, make's own quoting undone."""
    joined = rule.replace("\\\n", " ")
    names: list[str] = []
    for line in joined.splitlines():
        names += re.findall(r"(?:\\.|\S)+", line.partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def named_by_flags(variant: CAbiVariant, folder: Path) -> list[str]:
    """Files that a word of a flag names: options and what these name, specs, scripts of the linker, programs."""
    words = [word for flag in variant.build.flags for word in re.split(r"[,=@]", flag)]
    options = (str(path) for path in named_by(variant.build.flags, folder))
    return [*options, *(word for word in words if word and (folder / word).is_file())]


def rivals(variant: CAbiVariant, files: Iterable[str], include: Path, loads: Iterable[str]) -> set[str]:
    """Paths at which a file would be found instead of a listed one: search paths of flags and environment."""
    flags, known = variant.build.flags, list(files)
    places = [os.path.dirname(source) for source in variant.sources]
    places += [*_values(flags, HEADERS), str(include), *_paths("CPATH", "CPLUS_INCLUDE_PATH")]
    names = {os.path.relpath(file, place) for file in known for place in places if is_below(file, place or ".")}
    names |= {file for file in known if not file.startswith(("/", "../"))}
    candidates = {os.path.join(place, name) for place in places for name in names}
    linked = [flag[2:] for flag in flags if flag.startswith("-l")]
    for place in (*_values(flags, LIBRARIES), *_paths("LIBRARY_PATH")):
        candidates |= {os.path.join(place, f"lib{name}.{kind}") for name in linked for kind in ("so", "a")}
    run_paths = [word for flag in flags if "-rpath" in flag for word in re.split(r"[,=:]", flag) if "/" in word]
    for place in (*run_paths, *_paths("LD_LIBRARY_PATH")):
        candidates |= {os.path.join(place, os.path.basename(name)) for name in loads}
    return candidates


def _values(flags: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """What follows flags of these names, in one word with them or as the next one."""
    values, before = [], ""
    for flag in flags:
        if before in names:
            values.append(flag)
        values += [flag[len(name) :] for name in names if flag.startswith(name) and flag not in names][:1]
        before = flag
    return values


def _paths(*variables: str) -> list[str]:
    return [place for name in variables for place in os.environ.get(name, "").split(":") if place]


def compilers(compiler: str) -> list[str]:
    """The compiler, and every place of the PATH before it."""
    paths = [compiler] if "/" in compiler else []
    for place in _paths("PATH") if "/" not in compiler else ():
        paths.append(os.path.join(place, compiler))
        if os.path.exists(paths[-1]):
            break
    return paths


def loaded(library: Path) -> Generator[Tick, None, list[str]]:
    """Libraries that are loaded with one, by their paths; nothing of it is run. None without `ldd`."""
    if shutil.which("ldd") is None:
        return []
    completed = yield from run(["ldd", str(library)], limit_s=LIMIT_S, env=ENGLISH, note="looking what it loads")
    return re.findall(r"(?:=> |^\s+)(/\S.*?) \(0x", completed.output, re.MULTILINE)


ASSEMBLY, LINKED = "--MD", "--dependency-file"
"""Options by which an assembler and a linker write what they read."""


def lists(variant: CAbiVariant, folder: Path) -> dict[str, list[str]]:
    """By option, flags by which assembler and linker write what they read into a file of that name in `folder`."""
    linked = {LINKED: ["-Xlinker", f"{LINKED}={folder / LINKED}"]}
    if Path(variant.build.compiler).name == "nvcc":  # It starts three assemblers: each would write anew.
        return linked
    return {ASSEMBLY: ["-Xassembler", ASSEMBLY, "-Xassembler", str(folder / ASSEMBLY)], **linked}


def read_lists(folder: Path) -> list[str]:
    """What these files name."""
    paths = (folder / ASSEMBLY, folder / LINKED)
    return [
        name for path in paths if path.is_file() for name in dependencies(path.read_text(errors="surrogateescape"))
    ]
