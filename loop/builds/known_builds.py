"""The build cache, and the state of each file that a build read.

`<build id>/` holds a library with its record. `questions/<recipe>/<build id>.json` holds the states of its
files, by the hash of its recipe in its environment. A library is used while no file has changed.
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

MISSING, NOT_A_FILE = "nothing", "other"
"""Content in a fact for a missing path, and for a path that is no regular file."""
COMPILER_VARIABLES = (
    "PATH", "HOME", "TMPDIR", "LC_ALL", "TZ", "PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH",
    "CPLUS_INCLUDE_PATH", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""Environment variables that can change a compiler's output."""
ENGLISH_MESSAGES = {"LC_ALL": "C"}
"""Environment for tools whose messages `loop` parses."""
HEADER_FLAGS, LIBRARY_FLAGS = ("-I", "-iquote", "-isystem", "-idirafter"), ("-L",)
"""Flags that name search folders for headers and for libraries."""
LIMIT_S = 60.0
ASSEMBLER_LIST, LINKER_LIST = "--MD", "--dependency-file"
"""Options that make an assembler and a linker list the files they read."""

StatFields = list[int] | None
"""Result of stat(2): mode, size, two times of change, inode, device; None for a missing path."""
FileState = tuple[str, StatFields]
"""State of one path: content (`nothing`, `other`, or a hash of the bytes) and result of stat(2)."""
FileStates = Mapping[str, FileState]
"""States by path, relative to the variant's folder where possible."""


class FileChanged(Exception):
    """A file changed during the build, so it is unknown which content the compiler read."""


def stat_fields(path: str) -> StatFields:
    """Result of stat(2) for a path, which changes with the file; None if it does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return [status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def file_state(path: str) -> FileState:
    """Content and stat fields of a path now."""
    fields = stat_fields(path)
    return MISSING if fields is None else hash_content(path, tuple(fields)), fields


@functools.lru_cache(maxsize=1 << 14)
def hash_content(path: str, stat_values: tuple[int, ...]) -> str:
    """Hash of a file's bytes, cached while its `stat_values` are the same; `other` for no regular file."""
    try:
        return content_hash(Path(path).read_bytes()) if stat.S_ISREG(stat_values[0]) else NOT_A_FILE
    except OSError:
        return NOT_A_FILE


def file_states(paths: Iterable[str], folder: Path, output: Path) -> dict[str, FileState]:
    """States of the files that the tools listed for a build. Files below `output` do not count."""
    names = dict.fromkeys(name for path in paths if (name := name_in_states(path, folder, output)))
    return {name: file_state(os.path.join(folder, name)) for name in names}


def name_in_states(path: str, folder: Path, output: Path) -> str | None:
    """The key of a path in FileStates: relative inside `folder`. None for files of `output` and devices."""
    if not os.path.isabs(path):
        return os.path.normpath(path)
    is_output = any(is_below(path, str(parent)) for parent in (output, output.resolve()))
    if is_output or path.startswith(("/dev/", "/proc/")):
        return None
    for parent in (folder, folder.resolve()):
        if is_below(path, str(parent)):
            return os.path.relpath(path, parent)
    return path


def is_below(path: str, folder: str) -> bool:
    """True if `path` is `folder` or lies below it, by text alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def are_unchanged(states: FileStates, base: Path) -> bool:
    """True if all files still have these states. `base`: folder for relative paths."""
    for name, (content, fields_before) in states.items():
        path = os.path.join(base, name)
        if stat_fields(path) != fields_before and file_state(path)[0] != content:
            return False
    return True


def parse_states(stored: Mapping[str, list[Any]]) -> dict[str, FileState]:
    """States from JSON, in the order of checking: relative ones first, as these change most; missing ones last."""
    names = sorted(stored, key=lambda name: (name.startswith("/"), stored[name][1] is None))
    return {name: (stored[name][0], stored[name][1]) for name in names}


def names_and_contents(states: FileStates, include: Path) -> list[str]:
    """Names and contents of existing files, for a hash. The place of loop's headers (`include`) does not count."""
    pairs = []
    for name, (content, _) in states.items():
        if content not in (MISSING, NOT_A_FILE):
            is_header = is_below(name, str(include))
            pairs.append((name.replace(str(include), "loop", 1) if is_header else name, content))
    return [text for pair in sorted(pairs) for text in pair]


def parse_make_rules(rule: str) -> list[str]:
    """Files on the right of make rules, as `-M` and linkers print them, without make's quoting."""
    names: list[str] = []
    for line in rule.replace("\\\n", " ").splitlines():
        names += re.findall(r"(?:\\.|\S)+", line.partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def files_in_flags(variant: CAbiVariant, folder: Path) -> list[str]:
    """Files that flags name: option files and their content, specs, linker scripts, programs."""
    words = [word for flag in variant.build.flags for word in re.split(r"[,=@]", flag)]
    options = (str(path) for path in read_option_files(variant.build.flags, folder))
    return [*options, *(word for word in words if word and (folder / word).is_file())]


def shadowing_paths(variant: CAbiVariant, files: Iterable[str], include: Path, loads: Iterable[str]) -> set[str]:
    """Paths where a new file would shadow a file that the build read: each name in each search folder.

    `files`: headers and sources that were read. `loads`: libraries that the loader takes.
    """
    flags, files_read = variant.build.flags, list(files)
    header_folders = [os.path.dirname(source) for source in variant.sources]
    header_folders += [*_flag_values(flags, HEADER_FLAGS), str(include)]
    header_folders += _folders_in("CPATH", "CPLUS_INCLUDE_PATH")
    names = {file for file in files_read if not file.startswith(("/", "../"))}
    for folder in header_folders:
        names |= {os.path.relpath(file, folder) for file in files_read if is_below(file, folder or ".")}
    paths = {os.path.join(folder, name) for folder in header_folders for name in names}
    library_names = [flag[2:] for flag in flags if flag.startswith("-l")]
    for folder in (*_flag_values(flags, LIBRARY_FLAGS), *_folders_in("LIBRARY_PATH")):
        paths |= {os.path.join(folder, f"lib{name}.{kind}") for name in library_names for kind in ("so", "a")}
    words = [word for flag in flags if "-rpath" in flag for word in re.split(r"[,=:]", flag)]
    run_folders = [word for word in words if "/" in word]
    for folder in (*run_folders, *_folders_in("LD_LIBRARY_PATH")):
        paths |= {os.path.join(folder, os.path.basename(name)) for name in loads}
    return paths


def _flag_values(flags: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """Values of these flags, joined to the flag or in the next word."""
    values, previous_flag = [], ""
    for flag in flags:
        if previous_flag in names:
            values.append(flag)
        values += [flag[len(name) :] for name in names if flag.startswith(name) and flag not in names][:1]
        previous_flag = flag
    return values


def _folders_in(*variables: str) -> list[str]:
    """Folders listed in these environment variables, such as PATH."""
    return [folder for name in variables for folder in os.environ.get(name, "").split(":") if folder]


def compiler_paths(compiler: str) -> list[str]:
    """Path of the compiler, and earlier PATH entries where another one would shadow it."""
    if "/" in compiler:
        return [compiler]
    paths = []
    for folder in _folders_in("PATH"):
        paths.append(os.path.join(folder, compiler))
        if os.path.exists(paths[-1]):
            break
    return paths


def loaded_libraries(library: Path) -> Generator[Tick, None, list[str]]:
    """Paths of the libraries that the loader would load with this one; empty without `ldd`."""
    if shutil.which("ldd") is None:
        return []
    command, note = ["ldd", str(library)], "looking what it loads"
    completed = yield from run(command, limit_s=LIMIT_S, env=ENGLISH_MESSAGES, note=note)
    return re.findall(r"(?:=> |^\s+)(/\S.*?) \(0x", completed.output, re.MULTILINE)


def list_options(variant: CAbiVariant, folder: Path) -> dict[str, list[str]]:
    """Flags that make assembler and linker list their files in `folder`, by option."""
    flags = {LINKER_LIST: ["-Xlinker", f"{LINKER_LIST}={folder / LINKER_LIST}"]}
    if Path(variant.build.compiler).name != "nvcc":  # Its three assemblers would overwrite one file.
        flags[ASSEMBLER_LIST] = ["-Xassembler", ASSEMBLER_LIST, "-Xassembler", str(folder / ASSEMBLER_LIST)]
    return flags


def read_dependency_lists(folder: Path) -> list[str]:
    """Files that assembler and linker listed in `folder`, by the flags of `list_options`."""
    paths = [path for path in (folder / ASSEMBLER_LIST, folder / LINKER_LIST) if path.is_file()]
    return [name for path in paths for name in parse_make_rules(path.read_text(errors="surrogateescape"))]


LIBRARY, RECORD, LOG, RECIPES_FOLDER = "kernel.so", "build.json", "log.txt", "questions"
FORMAT = 2
MAX_BUILDS = 256
"""Most builds kept for a recipe; the oldest are removed."""
FIELDS = ("format", "build_id", "sha256", "seconds", "compiler", "command", "loads")
"""Fields of `build.json`."""
Record = dict[str, Any]


@dataclass(frozen=True)
class KnownBuild:
    """Record of a library and everything it was built from."""

    build_id: str
    library: str
    """SHA-256 of the library."""
    files_read: FileStates
    """Files that the tools read, and `shadowing_paths`; relative to the variant's folder."""
    libraries_loaded: FileStates
    """Libraries that the loader would load; relative to the working folder."""
    framework_headers: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "KnownBuild":
        """Read a file of `store_known_build`. Raises OSError, LoopError or a parsing error."""
        fields = json.loads(sums.without_checksum(path, sums.read_regular(path)))
        files_read, loaded = parse_states(fields["facts"]), parse_states(fields["loads"])
        return cls(path.stem, fields["library"], files_read, loaded, tuple(fields["framework_headers"]))


def find_known_build(recipe: str, folder: Path, cache: Path) -> KnownBuild | None:
    """Record of the build of the current files in `folder`; None without one. Its library may be missing.

    `recipe`: the hash that `recipe_key` computes.
    """
    for path in _newest_first(cache / RECIPES_FOLDER / recipe):
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
        if are_unchanged(known.files_read, folder) and are_unchanged(known.libraries_loaded, Path.cwd()):
            return known
    return None


def _newest_first(recipe_folder: Path) -> list[Path]:
    """Files of the stored builds of one recipe, newest first."""
    try:
        return sorted(recipe_folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []


def store_known_build(recipe: str, known: KnownBuild, cache: Path) -> None:
    """Store the record of a build by its `recipe_key`. Raises LoopError if the cache cannot be written."""
    recipe_folder = cache / RECIPES_FOLDER / recipe
    fields: dict[str, Any] = {"library": known.library, "framework_headers": known.framework_headers}
    fields |= {"facts": known.files_read, "loads": known.libraries_loaded}
    try:
        recipe_folder.mkdir(parents=True, exist_ok=True)
        sums.write_sealed(recipe_folder / f"{known.build_id}.json", fields)
        for old in _newest_first(recipe_folder)[MAX_BUILDS:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise _cache_error(cache, error) from error


def read_intact_record(folder: Path) -> Record | None:
    """Record of a finished build; None if its library is damaged, or if others can change it."""
    if why := explain_foreign_access(folder / LIBRARY) or explain_foreign_access(folder / RECORD):
        remark_once(f"{folder} is not used: {why}")
        return None
    try:
        record: Record = json.loads(sums.without_checksum(folder, (folder / RECORD).read_bytes()))
        actual = [record[name] for name in FIELDS][:3]  # Format, build id, the library's hash.
        expected = [FORMAT, folder.name.partition("-")[0], content_hash((folder / LIBRARY).read_bytes())]
    except (OSError, ValueError, KeyError, TypeError, LoopError):
        return None
    return record if actual == expected else None


def library_folders(known: KnownBuild, cache: Path) -> tuple[Path, Path]:
    """The two folders in which a build's library may lie.

    Compilers write the folder's name into a library, so two clones of a source need two libraries.
    """
    return cache / known.build_id, cache / f"{known.build_id}-{known.library[:16]}"


def find_library(known: KnownBuild, cache: Path) -> tuple[Path, Record] | None:
    """Folder and record of a build's undamaged library; None if there is none."""
    records = ((folder, read_intact_record(folder)) for folder in library_folders(known, cache))
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
            raise _cache_error(cache, error) from error
        yield folder


def _cache_error(cache: Path, error: OSError) -> LoopError:
    """The error to raise if the build cache cannot be written."""
    message = f"{cache}: cannot write the build cache: {error.strerror}"
    return WorkFailed(message, hint="set LOOP_CACHE to a folder that can be written")


def finish_build(
    folder: Path, known: KnownBuild, placeholder: str, command: list[str], seconds: float, compiler: str
) -> tuple[KnownBuild, Record]:
    """Replace the placeholder in the library by the build id, and write the record."""
    data = (folder / LIBRARY).read_bytes().replace(placeholder.encode(), known.build_id.encode())
    (folder / LIBRARY).write_bytes(data)
    record: Record = {
        "format": FORMAT,
        "build_id": known.build_id,
        "sha256": content_hash(data),
        "seconds": round(seconds, 3),
        "compiler": compiler,
        "command": [word.replace(placeholder, known.build_id) for word in command],
        "loads": {os.path.join(Path.cwd(), name): fact for name, fact in known.libraries_loaded.items()},
    }
    (folder / RECORD).write_text(sums.with_checksum(to_json(record)))
    return replace(known, library=record["sha256"]), record


def store_library(folder: Path, known: KnownBuild, cache: Path) -> Path:
    """Move a finished build into the cache. Returns its final folder."""
    if stored := find_library(known, cache):
        return stored[0]
    plain_folder, suffixed_folder = library_folders(known, cache)
    destination = suffixed_folder if read_intact_record(plain_folder) else plain_folder
    move_folder(folder, destination, cache, lambda: find_library(known, cache) is not None)
    stored = find_library(known, cache)
    return stored[0] if stored else destination


def move_folder(folder: Path, destination: Path, cache: Path, is_stored: Callable[[], bool]) -> None:
    """Rename a finished folder to `destination`, and remove a damaged one that is there.

    If another session stored the same build first (`is_stored`), its folder stays.
    """
    with locked_temporary_folder(cache, ".old-") as old_folder:
        try:
            if destination.exists():
                destination.rename(old_folder / "old")
            folder.rename(destination)
        except OSError:
            if not is_stored():
                raise
