"""The build cache, and the facts about files that a build read.

A question is the hash of a recipe in an environment. `<build id>/` holds a library with its record.
`questions/<question>/<build id>.json` holds its facts. A library is used while all of them hold.
"""

import functools
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loop.base.documents import content_hash, sums, to_json
from loop.base.errors import LoopError, WorkFailed, remark_once
from loop.base.locks import locked_temporary_folder
from loop.base.places import explain_foreign_access
from loop.base.processes import Tick, run
from loop.library.trust import read_option_files
from loop.model.target import CAbiVariant

NOTHING, OTHER = "nothing", "other"
"""Content in a fact for a missing path, and for a path that is no regular file."""
SEEN = (
    "PATH", "HOME", "TMPDIR", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH",
    "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""Environment variables that can change a compiler's output."""
ENGLISH = {"LC_ALL": "C"}
"""Environment for tools whose messages `loop` parses."""
HEADERS, LIBRARIES = ("-I", "-iquote", "-isystem", "-idirafter"), ("-L",)
"""Flags that name search folders for headers and for libraries."""
LIMIT_S = 60.0
ASSEMBLY, LINKED = "--MD", "--dependency-file"
"""Options that make an assembler and a linker list the files they read."""

Signature = list[int] | None
"""Result of stat(2): mode, size, two times of change, inode, device; None for a missing path."""
Fact = tuple[str, Signature]
"""State of one path: content (`nothing`, `other`, or a hash of the bytes) and signature."""
Facts = Mapping[str, Fact]
"""Facts by path, relative to the variant's folder where possible."""


class Changed(Exception):
    """A file changed during the build, so it is unknown which content the compiler read."""


def stat_signature(path: str) -> Signature:
    """Signature of a path; None if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return [status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def fact_of(path: str) -> Fact:
    """Fact about a path now."""
    now = stat_signature(path)
    return NOTHING if now is None else content_of(path, tuple(now)), now


@functools.lru_cache(maxsize=1 << 14)
def content_of(path: str, now: tuple[int, ...]) -> str:
    """Hash of a file's bytes, cached by signature `now`; `other` for no regular file."""
    try:
        return content_hash(Path(path).read_bytes()) if stat.S_ISREG(now[0]) else OTHER
    except OSError:
        return OTHER


def facts_of(paths: Iterable[str], folder: Path, output: Path) -> dict[str, Fact]:
    """Facts about files that the tools listed for a build. Files below `output` do not count."""
    names = dict.fromkeys(name for path in paths if (name := name_in_facts(path, folder, output)))
    return {name: fact_of(os.path.join(folder, name)) for name in names}


def name_in_facts(path: str, folder: Path, output: Path) -> str | None:
    """Name of a path in facts: relative inside `folder`. None for files of `output` and devices."""
    if not os.path.isabs(path):
        return os.path.normpath(path)
    own_file = any(is_below(path, str(own)) for own in (output, output.resolve()))
    if own_file or path.startswith(("/dev/", "/proc/")):
        return None
    inside = (str(own) for own in (folder, folder.resolve()) if is_below(path, str(own)))
    return next((os.path.relpath(path, own) for own in inside), path)


def is_below(path: str, folder: str) -> bool:
    """True if `path` is `folder` or lies below it, by text alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def facts_hold(facts: Facts, base: Path) -> bool:
    """True if all files are unchanged. `base`: folder for relative paths."""
    for name, (content, before) in facts.items():
        path = os.path.join(base, name)
        if stat_signature(path) != before and fact_of(path)[0] != content:
            return False
    return True


def read_back(stored: Mapping[str, list[Any]]) -> dict[str, Fact]:
    """Facts from JSON, relative paths first, because these change most often."""
    names = sorted(stored, key=lambda name: (name.startswith("/"), stored[name][1] is None))
    return {name: (stored[name][0], stored[name][1]) for name in names}


def identity_of_facts(facts: Facts, include: Path) -> list[str]:
    """Names and contents of existing files, for a hash that is independent of their folder."""
    rows = (
        (name.replace(str(include), "loop", 1) if is_below(name, str(include)) else name, content)
        for name, (content, _) in facts.items()
        if content not in (NOTHING, OTHER)
    )
    return [text for row in sorted(rows) for text in row]


def dependencies_in(rule: str) -> list[str]:
    """Files on the right of make rules, as `-M` and linkers print them, without make's quoting."""
    names: list[str] = []
    for line in rule.replace("\\\n", " ").splitlines():
        names += re.findall(r"(?:\\.|\S)+", line.partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def named_by_flags(variant: CAbiVariant, folder: Path) -> list[str]:
    """Files that flags name: option files and their content, specs, linker scripts, programs."""
    words = [word for flag in variant.build.flags for word in re.split(r"[,=@]", flag)]
    options = (str(path) for path in read_option_files(variant.build.flags, folder))
    return [*options, *(word for word in words if word and (folder / word).is_file())]


def shadowing_paths(variant: CAbiVariant, files: Iterable[str], include: Path, loads: Iterable[str]) -> set[str]:
    """Paths where a new file would shadow a file that the build read, by all search paths."""
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
    """Values of these flags, joined to the flag or in the next word."""
    values, before = [], ""
    for flag in flags:
        if before in names:
            values.append(flag)
        values += [flag[len(name) :] for name in names if flag.startswith(name) and flag not in names][:1]
        before = flag
    return values


def _paths(*variables: str) -> list[str]:
    """Folders listed in these environment variables, such as PATH."""
    return [place for name in variables for place in os.environ.get(name, "").split(":") if place]


def compiler_paths(compiler: str) -> list[str]:
    """Path of the compiler, and earlier PATH entries where another one would shadow it."""
    if "/" in compiler:
        return [compiler]
    paths = []
    for place in _paths("PATH"):
        paths.append(os.path.join(place, compiler))
        if os.path.exists(paths[-1]):
            break
    return paths


def loaded_libraries(library: Path) -> Generator[Tick, None, list[str]]:
    """Paths of the libraries that the loader would load with this one; empty without `ldd`."""
    if shutil.which("ldd") is None:
        return []
    completed = yield from run(["ldd", str(library)], limit_s=LIMIT_S, env=ENGLISH, note="looking what it loads")
    return re.findall(r"(?:=> |^\s+)(/\S.*?) \(0x", completed.output, re.MULTILINE)


def list_flags(variant: CAbiVariant, folder: Path) -> dict[str, list[str]]:
    """Flags that make assembler and linker list their files in `folder`, by option."""
    linked = {LINKED: ["-Xlinker", f"{LINKED}={folder / LINKED}"]}
    if Path(variant.build.compiler).name == "nvcc":  # Its three assemblers would overwrite one file.
        return linked
    return {ASSEMBLY: ["-Xassembler", ASSEMBLY, "-Xassembler", str(folder / ASSEMBLY)], **linked}


def read_lists(folder: Path) -> list[str]:
    """Files that the lists of `list_flags` name."""
    paths = [path for path in (folder / ASSEMBLY, folder / LINKED) if path.is_file()]
    return [name for path in paths for name in dependencies_in(path.read_text(errors="surrogateescape"))]


LIBRARY, RECORD, LOG, QUESTIONS = "kernel.so", "build.json", "log.txt", "questions"
FORMAT = 2
MOST = 256
"""Most builds kept for a question; the oldest are removed."""
FIELDS = ("format", "build_id", "sha256", "seconds", "compiler", "command", "loads")
"""Fields of `build.json`."""
Record = dict[str, Any]


@dataclass(frozen=True)
class KnownBuild:
    """Record of a library and everything it was built from."""

    build_id: str
    library: str
    """SHA-256 of the library."""
    facts: Facts
    """Files that the tools read, and rival paths; relative to the variant's folder."""
    loads: Facts
    """Libraries that the loader would load; relative to the working folder."""
    framework_headers: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "KnownBuild":
        """Read a file of `remember_build`. Raises OSError, LoopError or a parsing error."""
        fields = json.loads(sums.without_checksum(path, sums.read_regular(path)))
        facts, loads = (read_back(fields[name]) for name in ("facts", "loads"))
        return cls(path.stem, fields["library"], facts, loads, tuple(fields["framework_headers"]))


def find_known(question: str, folder: Path, cache: Path) -> KnownBuild | None:
    """Record of the build of the current files in `folder`; its library may be missing."""
    for path in _by_age(cache / QUESTIONS / question):
        if why := explain_foreign_access(path):
            remark_once(f"{path} is not used: {why}")
            continue
        try:
            known = KnownBuild.read(path)
        except OSError:  # Removed, or unreadable.
            continue
        except (ValueError, KeyError, TypeError, IndexError, LoopError):
            remark_once(f"{path} is damaged: the build is made again")
            continue
        if facts_hold(known.facts, folder) and facts_hold(known.loads, Path.cwd()):
            return known
    return None


def _by_age(place: Path) -> list[Path]:
    """Stored builds of a question, newest first."""
    try:
        return sorted(place.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []


def remember_build(question: str, known: KnownBuild, cache: Path) -> None:
    """Store the record of a build. Raises LoopError if the cache cannot be written."""
    place = cache / QUESTIONS / question
    fields = {name: getattr(known, name) for name in ("library", "framework_headers", "facts", "loads")}
    try:
        place.mkdir(parents=True, exist_ok=True)
        sums.write_sealed(place / f"{known.build_id}.json", fields)
        for old in _by_age(place)[MOST:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(cache, error) from error


def whole_build(folder: Path) -> Record | None:
    """Record of a finished build; None if its library is damaged, or if others can change it."""
    if why := explain_foreign_access(folder / LIBRARY) or explain_foreign_access(folder / RECORD):
        remark_once(f"{folder} is not used: {why}")
        return None
    try:
        record: Record = json.loads(sums.without_checksum(folder, (folder / RECORD).read_bytes()))
        actual = [record[name] for name in FIELDS][:3]
        expected = [FORMAT, folder.name.partition("-")[0], content_hash((folder / LIBRARY).read_bytes())]
    except (OSError, ValueError, KeyError, TypeError, LoopError):
        return None
    return record if actual == expected else None


def library_places(known: KnownBuild, cache: Path) -> tuple[Path, Path]:
    """The two folders in which a build's library may lie.

    Compilers write the folder's name into a library, so two clones of a source need two libraries.
    """
    return cache / known.build_id, cache / f"{known.build_id}-{known.library[:16]}"


def stored_library(known: KnownBuild, cache: Path) -> tuple[Path, Record] | None:
    """Folder and record of a build's undamaged library; None if there is none."""
    records = ((place, whole_build(place)) for place in library_places(known, cache))
    return next(((p, record) for p, record in records if record and record["sha256"] == known.library), None)


@contextmanager
def new_folder(cache: Path) -> Iterator[Path]:
    """A folder in the cache to build in. The next build removes the folder of a killed one.

    Raises LoopError if the cache cannot be written.
    """
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(locked_temporary_folder(cache, ".making-"))
        except OSError as error:
            raise _unusable(cache, error) from error
        yield folder


def _unusable(cache: Path, error: OSError) -> LoopError:
    """The error to raise if the build cache cannot be written."""
    message = f"{cache}: cannot write the build cache: {error.strerror}"
    return WorkFailed(message, hint="set LOOP_CACHE to a folder that can be written")


def finish_build(
    folder: Path, known: KnownBuild, stand_in: str, command: list[str], seconds: float, compiler: str
) -> tuple[KnownBuild, Record]:
    """Replace the placeholder in the library by the build id, and write the record."""
    data = (folder / LIBRARY).read_bytes().replace(stand_in.encode(), known.build_id.encode())
    (folder / LIBRARY).write_bytes(data)
    record: Record = {
        "format": FORMAT,
        "build_id": known.build_id,
        "sha256": content_hash(data),
        "seconds": round(seconds, 3),
        "compiler": compiler,
        "command": [word.replace(stand_in, known.build_id) for word in command],
        "loads": {os.path.join(Path.cwd(), name): fact for name, fact in known.loads.items()},
    }
    (folder / RECORD).write_text(sums.with_checksum(to_json(record)))
    return replace(known, library=record["sha256"]), record


def move_into_place(folder: Path, known: KnownBuild, cache: Path) -> Path:
    """Move a finished build into the cache. Returns its final folder."""
    if there := stored_library(known, cache):
        return there[0]
    first, other = library_places(known, cache)
    place = other if whole_build(first) else first
    move_to_place(folder, place, cache, lambda: stored_library(known, cache) is not None)
    there = stored_library(known, cache)
    return there[0] if there else place


def move_to_place(folder: Path, place: Path, cache: Path, is_there: Callable[[], bool]) -> None:
    """Rename a finished folder to `place`, and remove a damaged one that is there.

    If another session stored the same build first (`is_there`), its folder stays.
    """
    with locked_temporary_folder(cache, ".old-") as doomed:
        try:
            if place.exists():
                place.rename(doomed / "old")
            folder.rename(place)
        except OSError:
            if not is_there():
                raise
