"""From sources to a shared library that carries the hash of what it was built from.

The build id covers every file the compiler reads (it lists them itself), the flags, the compiler's
version and the processor that -march=native stands for. The cache is keyed by it; a binary whose bytes
are not those that were recorded is built again.
"""

import functools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

from loop.bench.machine import compiler_version
from loop.documents import content_hash
from loop.errors import LoopError
from loop.model.measurement import Build
from loop.model.target import BuildRecipe, CAbiVariant
from loop.processes import Completed, Tick, finish, run

SCAN_LIMIT_S = 60.0
PACKAGES = {"nvcc": "nvidia-cuda-toolkit", "g++": "g++", "gcc": "gcc", "clang": "clang", "clang++": "clang"}
FRAMEWORK = re.compile(r"(?:^|/)(?:torch|ATen|c10|pybind11|tensorflow)/")
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?:fatal )?error:?\s*(?P<text>.*)"
)
"""How g++, clang and nvcc's host pass report an error."""
NVCC_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\):\s*(?:catastrophic )?error:?\s*(?P<text>.*)"
)
LIBRARY, RECORD, LOG = "kernel.so", "build.json", "log.txt"
REMEDIES = {
    "Failed to preprocess host compiler": "nvcc needs a host compiler: install g++ (`apt-get install g++`)",
    "Cannot find compiler 'g++'": "nvcc needs a host compiler: install g++ (`apt-get install g++`)",
    "unsupported GNU version": "nvcc refuses this g++: install an older one, and name it: `-ccbin g++-12`",
    "unrecognized command-line option": "the compiler does not know this flag: it may be too old, g++ 9 does",
    "unrecognized command line option": "the compiler does not know this flag: it may be too old, g++ 9 does",
    "Unsupported gpu architecture": "this nvcc does not know the GPU: take a toolkit that does",
    "is not defined for option 'gpu-architecture'": "this nvcc does not know the GPU: take a toolkit that does",
}
"""What a compiler says where no line is to be mended, and what is."""
ENGLISH = {"LC_ALL": "C"}
"""Environment of a compiler whose messages are to be read here."""


@dataclass(frozen=True)
class Sources:
    """What a variant would be built from, now."""

    build_id: str
    framework_headers: tuple[str, ...]
    units: int
    files: tuple[str, ...] = ()
    """Files of the variant's folder among them, by their path from there."""


class BuildFailed(Exception):
    """The compiler said no: the first error with file and line, and the whole log."""

    def __init__(self, message: str, hint: str, log: str, *, no_compiler: bool = False) -> None:
        super().__init__(message)
        self.no_compiler = no_compiler
        """Whether there is nothing to compile with: a fault of the machine, not of the source."""
        self.message, self.hint, self.log = message, hint, log

    def of(self, variant: str) -> "BuildFailed":
        """The same failure, said of a variant."""
        return BuildFailed(f"{variant}: {self.message}", self.hint, self.log, no_compiler=self.no_compiler)


def scan(variant: CAbiVariant, folder: Path, include: Path) -> Generator[Tick, None, Sources]:
    """Ask the compiler what it would read. Raises BuildFailed when a source or header is missing."""
    files = yield from _files_read(variant, folder, include)
    headers = tuple(file for file in files if FRAMEWORK.search(file))
    inside = {os.path.relpath(folder / file, folder) for file in files}
    own = tuple(sorted(name for name in inside if not name.startswith("..")))
    return Sources(_build_id(variant, folder, files), headers, len(variant.sources), own)


def ground(variant: CAbiVariant, folder: Path, include: Path, but: Iterable[str]) -> Generator[Tick, None, str]:
    """Hash of sources, recipe and compiler, `but` for some flags: the same for every value that these may have.

    Raises BuildFailed as `scan` does.
    """
    files = yield from _files_read(variant, folder, include)
    flags = tuple(flag for flag in variant.build.flags if flag not in set(but))
    recipe = variant.build.model_copy(update={"flags": flags})
    return _build_id(variant.model_copy(update={"build": recipe}), folder, files)


def _files_read(variant: CAbiVariant, folder: Path, include: Path) -> Generator[Tick, None, list[str]]:
    """Every file that the compiler reads."""
    _need_compiler(variant.build.compiler)
    for source in variant.sources:
        if not (folder / source).is_file():
            raise BuildFailed(f"{source}: no such source file", f"it is named in {folder / 'target.yaml'}", "")
    command = [*_base(variant, include), "-M", *variant.sources]
    done = yield from run(command, cwd=folder, limit_s=SCAN_LIMIT_S, env=ENGLISH, note="reading the sources")
    if not done.ok:
        raise _failure(done, "read")
    return sorted(set(dependencies(done.output)))


def dependencies(rule: str) -> list[str]:
    """Files named on the right of the make rules that `-M` prints, make's own quoting undone."""
    joined = rule.replace("\\\n", " ")
    names: list[str] = []
    for line in joined.splitlines():
        names += re.findall(r"(?:\\.|\S)+", line.partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def _build_id(variant: CAbiVariant, folder: Path, files: Iterable[str]) -> str:
    """Hash of contents, names, recipe and compiler; where the folder lies does not matter."""
    parts: list[str] = []
    for file in files:
        path = folder / file
        name = os.path.relpath(path, folder) if path.is_relative_to(folder) else path.name
        parts += [name, content_hash(path.read_bytes())]
    recipe = [variant.build.compiler, *variant.build.flags, *variant.sources]
    version = compiler_version(variant.build.compiler) or ""
    native = _native(variant.build.compiler) if "-march=native" in variant.build.flags else ""
    return content_hash("\0".join([*sorted_pairs(parts), *recipe, version, native]))[:32]


def sorted_pairs(parts: list[str]) -> list[str]:
    """Name and hash pairs, in the order of the names."""
    pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
    return [text for pair in pairs for text in pair]


@functools.cache
def _native(compiler: str) -> str:
    """What -march=native means here: all target switches of the compiler."""
    done = finish(run([compiler, "-march=native", "-Q", "--help=target"], limit_s=SCAN_LIMIT_S))
    assert isinstance(done, Completed)
    return content_hash(done.output)


def find(variant_name: str, sources: Sources, cache: Path) -> Build | None:
    """The cached build of exactly these sources, if it is there and whole."""
    folder = cache / sources.build_id
    record = _whole(folder)
    return _build(variant_name, sources, folder, record, cached=True) if record else None


def find_id(variant_name: str, build_id: str, cache: Path) -> Build | None:
    """The cached build with that id, whatever its sources are now."""
    record = _whole(cache / build_id)
    if record is None:
        return None
    sources = Sources(build_id, (), 1)
    return _build(variant_name, sources, cache / build_id, record, cached=True)


def _whole(folder: Path) -> dict[str, object] | None:
    """The record of a finished build, if it is that build's and its library is the one that was recorded."""
    try:
        record = json.loads((folder / RECORD).read_text())
        found = (record["build_id"], record["sha256"], {"seconds", "compiler"} <= record.keys())
        expected = (folder.name, content_hash((folder / LIBRARY).read_bytes()), True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if found == expected else None


def build(
    name: str, variant: CAbiVariant, folder: Path, *, cache: Path, include: Path, limit_s: float
) -> Generator[Tick, None, Build]:
    """Build a variant, or find it in the cache.

    Raises BuildFailed with the first error's file and line when it does not compile.
    """
    sources = yield from scan(variant, folder, include)
    found = find(name, sources, cache)
    if found is not None:
        return found
    damaged = (cache / sources.build_id).exists()
    record = yield from _compile(variant, folder, sources, cache, include, limit_s)
    note = "the cached binary was not the one that was recorded; built again" if damaged else None
    made = _build(name, sources, cache / sources.build_id, record, cached=False)
    return made.model_copy(update={"note": note})


def _build(name: str, sources: Sources, folder: Path, record: dict[str, object], *, cached: bool) -> Build:
    return Build(
        variant=name,
        build_id=sources.build_id,
        library=str(folder / LIBRARY),
        seconds=float(str(record["seconds"])),
        cached=cached,
        units=sources.units,
        framework_headers=sources.framework_headers,
        compiler=str(record["compiler"]),
    )


def _compile(
    variant: CAbiVariant, folder: Path, sources: Sources, cache: Path, include: Path, limit_s: float
) -> Generator[Tick, None, dict[str, object]]:
    made = _new_folder(cache)
    try:
        define = f'-DLOOP_BUILD_ID="{sources.build_id}"'
        command = [*_base(variant, include), *_shared(variant.build), define]
        command += [*variant.sources, *linked(variant.build), "-o", str(made / LIBRARY)]
        begun = time.monotonic()
        note = f"compiling {variant.sources[0]}"
        done = yield from run(command, cwd=folder, limit_s=limit_s, env=ENGLISH, note=note)
        if not done.ok:
            raise _failure(done, "compile")
        record = _record(made, sources, command, time.monotonic() - begun, variant.build.compiler)
        (made / LOG).write_text(done.errors)
        _move_into_place(made, cache / sources.build_id)
        return record
    finally:
        shutil.rmtree(made, ignore_errors=True)


def linked(recipe: BuildRecipe) -> list[str]:
    """Libraries among the flags: the linker wants them after what uses them."""
    return [flag for flag in recipe.flags if flag.startswith("-l") or flag.endswith((".a", ".o", ".so"))]


def _new_folder(cache: Path) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".making-", dir=cache))
    except OSError as error:
        raise LoopError(
            f"{cache}: cannot write the build cache: {error.strerror}",
            hint="set LOOP_CACHE to a folder that can be written",
        ) from error


def _record(made: Path, sources: Sources, command: list[str], seconds: float, compiler: str) -> dict[str, object]:
    record: dict[str, object] = {
        "format": 1,
        "build_id": sources.build_id,
        "sha256": content_hash((made / LIBRARY).read_bytes()),
        "seconds": round(seconds, 3),
        "compiler": compiler_version(compiler) or "",
        "command": command,
    }
    (made / RECORD).write_text(json.dumps(record, indent=1))
    return record


def _move_into_place(made: Path, place: Path) -> None:
    """Rename into the cache; when another session was quicker with the same build, its work stands."""
    if _whole(place):
        return
    doomed = Path(tempfile.mkdtemp(prefix=".old-", dir=place.parent))
    try:
        if place.exists():
            place.rename(doomed / "old")
        made.rename(place)
    except OSError:
        if not _whole(place):
            raise
    finally:
        shutil.rmtree(doomed, ignore_errors=True)


def _base(variant: CAbiVariant, include: Path) -> list[str]:
    return [variant.build.compiler, *variant.build.flags, f"-I{include}"]


def _shared(recipe: BuildRecipe) -> list[str]:
    if Path(recipe.compiler).name == "nvcc":
        return ["-shared", "-Xcompiler", "-fPIC"]
    return ["-shared", "-fPIC"]


def _need_compiler(compiler: str) -> None:
    if compiler_version(compiler) is not None:
        return
    if shutil.which(compiler) is not None:
        raise BuildFailed(f"{compiler} is there and does not run", f"see what `{compiler} --version` says", "")
    raise BuildFailed(f"{compiler}: no such compiler on the PATH", how_to_install(compiler), "", no_compiler=True)


def how_to_install(compiler: str) -> str:
    """What to do about a compiler that is not there."""
    package = PACKAGES.get(Path(compiler).name)
    install = f"install it (Debian and Ubuntu: `apt-get install {package}`)" if package else "install it"
    return f"{install}, or name another compiler in target.yaml"


def _failure(done: Completed, what: str) -> BuildFailed:
    if done.timed_out:
        return BuildFailed(
            f"the compiler was {done.how}", "raise `limit_s` of the step, or simplify the source", done.errors
        )
    first = first_error(done.errors) or first_error(done.output)
    message = first or f"{done.command[0]} could not {what} the sources ({done.how})"
    if done.code < 0 or done.code == 127:
        message = f"{done.command[0]}: {done.how}"
    return BuildFailed(message, _mend(done.errors), done.errors)


def _mend(errors: str) -> str:
    """What to do about a compiler's error."""
    for words, hint in REMEDIES.items():
        if words in errors:
            return hint
    return "mend the line named above, then run the same command again"


def first_error(log: str) -> str | None:
    """The first error of a compiler's log as `file:line:col: text`."""
    for line in log.splitlines():
        match = DIAGNOSTIC.match(line) or NVCC_DIAGNOSTIC.match(line)
        if match:
            found = match.groupdict()
            column = f":{found['column']}" if found.get("column") else ""
            return f"{found['file']}:{found['line']}{column}: {found['text']}"
        linker = line.startswith(("/usr/bin/ld:", "ld:", "collect2:")) and ": in function" not in line
        if linker or line.startswith("nvcc fatal") or "undefined reference" in line:
            return line.strip()
    return next((line.strip() for line in log.splitlines() if "error:" in line), None)
