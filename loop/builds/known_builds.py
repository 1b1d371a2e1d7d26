"""The build cache, and the state of each file that a build read.

`<recipe>/<build id>/` holds a library, the compiler's log, and a record with the states of all
files that the build read. `<recipe>` is a hash of recipe and environment. A library is used while
no file has changed.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError, WorkFailed, remark_once
from loop.base.locks import locked_temporary_folder
from loop.base.places import explain_foreign_access
from loop.base.processes import Waiting, run
from loop.model.base import Model
from loop.model.target import CAbiVariant

MISSING, NOT_A_FILE = "nothing", "other"
"""Content in a state for a missing path, and for a path that is no regular file."""
ENGLISH_MESSAGES = {"LC_ALL": "C"}  # Environment for tools whose messages `loop` parses.
HEADER_FLAGS, LIBRARY_FLAGS = ("-I", "-iquote", "-isystem", "-idirafter"), ("-L",)
"""Flags that name search folders for headers and for libraries."""
LIMIT_S = 60.0
MAX_OPTION_FILE = 1 << 16  # Bytes of the largest file that may hold further flags.

StatFields = tuple[int, ...] | None  # stat(2): mode, size, two times, inode, device; None: no file.
FileState = tuple[str, StatFields]
"""State of one path: content (`nothing`, `other`, or a hash of the bytes) and result of stat(2)."""
FileStates = dict[str, FileState]  # By path, relative to the variant's folder where possible.


def file_state(path: str, before: FileState | None = None) -> FileState:
    """The present state of a path: content (a hash, MISSING or NOT_A_FILE) and stat fields.
    `before`: an earlier state; while stat(2) gives the same fields, the file is not read again."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return MISSING, None
    times_ns = status.st_mtime_ns, status.st_ctime_ns
    fields = status.st_mode, status.st_size, *times_ns, status.st_ino, status.st_dev
    return before if before and before[1] == fields else (hash_content(path, fields), fields)


@functools.lru_cache(maxsize=1 << 14)
def hash_content(path: str, stat_values: tuple[int, ...]) -> str:
    """Hash of a file's bytes, cached while `stat_values` are the same; NOT_A_FILE for others."""
    try:
        return content_hash(Path(path).read_bytes()) if stat.S_ISREG(stat_values[0]) else NOT_A_FILE
    except OSError:
        return NOT_A_FILE


def file_states(paths: Iterable[str], folder: Path, output: Path) -> FileStates:
    """States of the files that the tools listed for a build, but for devices and files below
    `output`. First come those of the variant's `folder`, which change most; last missing ones."""
    own_folders, states = (str(folder), str(folder.resolve())), FileStates()
    for path in paths:
        name = path if os.path.isabs(path) else os.path.normpath(path)
        is_output = is_below(path, str(output)) or is_below(path, str(output.resolve()))
        if is_output or path.startswith(("/dev/", "/proc/")):
            continue
        for own_folder in own_folders:
            if is_below(name, own_folder):
                name = os.path.relpath(name, own_folder)
        if name not in states:
            states[name] = file_state(os.path.join(folder, name))
    names = sorted(states, key=lambda name: (os.path.isabs(name), states[name][1] is None))
    return {name: states[name] for name in names}


def is_below(path: str, folder: str) -> bool:
    """True if `path` is `folder` or lies below it, by text alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def are_unchanged(states: FileStates, base: Path) -> bool:
    """True if all files still have these states. `base`: folder for relative paths."""
    pairs = ((os.path.join(base, name), state) for name, state in states.items())
    return all(file_state(path, state)[0] == state[0] for path, state in pairs)


def parse_make_rules(rule: str) -> list[str]:
    """Files on the right of make rules, as `-M` and linkers print them, without make's quoting."""
    names: list[str] = []
    for line in rule.replace("\\\n", " ").splitlines():
        names += re.findall(r"(?:\\.|\S)+", line.partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def files_in_flags(flags: Iterable[str], folder: Path) -> dict[str, str]:
    """Files that flags name, or the text of such a file: options, specs, linker scripts, programs.
    Name to text (`folder / name`), empty above `MAX_OPTION_FILE`. Unreadable ones are left out."""
    texts: dict[str, str] = {}
    pending = list(flags)
    while pending:
        for word in filter(None, re.split(r"[\s,=@'\"]+", pending.pop())):
            path = folder / word
            with contextlib.suppress(OSError, ValueError):  # Some words are no file names.
                if word not in texts and path.is_file():
                    is_small = path.stat().st_size <= MAX_OPTION_FILE
                    texts[word] = path.read_text(errors="surrogateescape") if is_small else ""
                    pending.append(texts[word])
    return texts


def shadowing_paths(
    variant: CAbiVariant, files: tuple[str, ...], include: Path, loaded: Iterable[str]
) -> set[str]:
    """Paths where a new file would shadow a file that the build read: each name in each search
    folder. `files`: headers and sources. `loaded`: libraries that the loader takes."""
    flags = variant.build.flags
    header_folders = [os.path.dirname(source) for source in variant.sources]
    header_folders += [*_flag_values(flags, HEADER_FLAGS), str(include)]
    header_folders += _folders_in("CPATH", "CPLUS_INCLUDE_PATH")
    names = {file for file in files if not file.startswith(("/", "../"))}
    for folder in header_folders:
        names |= {os.path.relpath(file, folder) for file in files if is_below(file, folder or ".")}
    paths = {os.path.join(folder, name) for folder in header_folders for name in names}
    linked = [flag[2:] for flag in flags if flag.startswith("-l")]
    library_files = [f"lib{name}.{kind}" for name in linked for kind in ("so", "a")]
    for folder in (*_flag_values(flags, LIBRARY_FLAGS), *_folders_in("LIBRARY_PATH")):
        paths |= {os.path.join(folder, file) for file in library_files}
    words = [word for flag in flags if "-rpath" in flag for word in re.split(r"[,=:]", flag)]
    run_folders = [word for word in words if "/" in word]
    for folder in (*run_folders, *_folders_in("LD_LIBRARY_PATH")):
        paths |= {os.path.join(folder, os.path.basename(name)) for name in loaded}
    return paths


def _flag_values(flags: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """Values of these flags, joined to the flag or in the next word."""
    values, previous_flag = [], ""
    for flag in flags:
        values += [flag] if previous_flag in names else []
        name = next((name for name in names if flag.startswith(name)), "")
        values += [flag.removeprefix(name)] if name and flag not in names else []
        previous_flag = flag
    return values


def _folders_in(*variables: str) -> list[str]:
    """Folders listed in these environment variables, such as PATH."""
    return [folder for name in variables for folder in os.getenv(name, "").split(":") if folder]


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


def loaded_libraries(library: Path) -> Waiting[list[str]]:
    """Paths of the libraries that the loader would load with this one; empty without `ldd`."""
    if shutil.which("ldd") is None:
        return []
    command, note = ["ldd", str(library)], "looking what it loads"
    completed = yield from run(command, limit_s=LIMIT_S, env=ENGLISH_MESSAGES, note=note)
    return re.findall(r"(?:=> |^\s+)(/\S.*?) \(0x", completed.output, re.MULTILINE)


LIBRARY, RECORD, LOG = "kernel.so", "build.json", "log.txt"
MAX_BUILDS = 256  # Newest builds of a recipe among which `loop` looks for the current files.


class BuildRecord(Model):
    """Contents of `build.json`: a library and everything it was built from."""

    recipe: str  # Hash of recipe and environment, by `recipe_key`.
    build_id: str
    sha256: str  # Hash of the library's bytes.
    seconds: float
    compiler: str  # First line of its `--version`.
    files_read: FileStates  # What tools read, and `shadowing_paths`; relative to the variant's.
    libraries_loaded: FileStates  # Libraries that the loader would load, by absolute path.


def read_record(folder: Path, base: Path | None = None) -> BuildRecord | None:
    """Record of a finished build; None if it or its library is damaged, or if others can change
    them. `base`: the variant's folder; then also None if a file that the build read has changed."""
    if why := explain_foreign_access(folder / LIBRARY) or explain_foreign_access(folder / RECORD):
        remark_once(f"{folder} is not used: {why}")
        return None
    try:
        record = sums.read_sealed(BuildRecord, folder / RECORD)
        if base and not are_unchanged({**record.files_read, **record.libraries_loaded}, base):
            return None
        is_intact = record.sha256 == file_state(str(folder / LIBRARY))[0]
    except (OSError, LoopError):
        return None
    return record if is_intact and record.build_id == folder.name else None


@contextmanager
def new_folder(cache: Path) -> Iterator[Path]:
    """A new folder in the cache; the next build removes that of a killed one. Raises WorkFailed."""
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(locked_temporary_folder(cache, ".making-"))
        except OSError as error:
            message = f"{cache}: cannot write the build cache: {error.strerror}"
            raise WorkFailed(message, "set LOOP_CACHE to a folder that can be written") from error
        yield folder


def move_folder(folder: Path, destination: Path, find_stored: Callable[[], object]) -> bool:
    """Rename a finished folder to `destination`, unless `find_stored` finds a build there, which
    another session stored. Returns True if it replaces a damaged one."""
    if find_stored():
        return False
    try:
        destination.parent.mkdir(exist_ok=True)
        is_damaged = destination.exists()
        shutil.rmtree(destination, ignore_errors=True)
        folder.rename(destination)
        return is_damaged
    except OSError:
        if not find_stored():
            raise
        return False
