"""Resources of kernels by the compiler's report: registers, spills, stack, shared memory.

nvcc's assembler prints the report with `-Xptxas -v`; the build stores it next to the library.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from loop.base.processes import Completed, Tick, run
from loop.builds.build import same_statements
from loop.builds.known_builds import LOG
from loop.model.measurement import Build
from loop.model.resources import KernelResources
from loop.model.target import BuildRecipe

LIMIT_S = 60.0
NAMES_AT_A_TIME = 500
STATIC = re.compile(r"__nv_static_(\d+)_")
"""nvcc's prefix for internal kernels in relocatable code: a length, then as many characters."""
BINUTILS = "install binutils (Debian and Ubuntu: `apt-get install binutils`)"


def demangle(symbols: Sequence[str]) -> Generator[Tick, None, dict[str, str]]:
    """Symbol to its demangled C++ name; unchanged if there is no c++filt."""
    plain = {}
    for symbol in symbols:
        prefix = STATIC.match(symbol)
        plain[symbol] = symbol[prefix.end() + int(prefix[1]) + 1 :] if prefix else symbol
    if not symbols or shutil.which("c++filt") is None:
        return plain
    names: list[str] = []
    for first in range(0, len(symbols), NAMES_AT_A_TIME):
        some = [plain[symbol] for symbol in symbols[first : first + NAMES_AT_A_TIME]]
        completed = yield from run(["c++filt", *some], limit_s=LIMIT_S, note="reading names")
        names += completed.output.splitlines()
    return dict(zip(symbols, names, strict=True)) if len(names) == len(symbols) else plain


def defined_names(library: Path) -> Generator[Tick, None, tuple[str, ...] | None]:
    """Demangled names of all symbols that a library defines; None if there is no nm."""
    if shutil.which("nm") is None:
        return None
    names: dict[str, None] = {}
    for more in ([], ["-D"]):  # A stripped library still has dynamic symbols.
        text = yield from whole_output(["nm", "-C", "--defined-only", *more, str(library)], "reading symbols")
        rows = (line.split(maxsplit=2) for line in (text or "").splitlines())
        names |= {row[2]: None for row in rows if len(row) > 2}
    return tuple(names)


def whole_output(command: Sequence[str], note: str) -> Generator[Tick, None, str | None]:
    """Complete output of a command, of any length; None if it fails."""
    with tempfile.TemporaryDirectory(prefix="loop-reading-") as folder:
        file = Path(folder) / "output"
        to_file = ["sh", "-c", 'exec "$@" > "$0"', str(file), *command]
        done: Completed = yield from run(to_file, limit_s=LIMIT_S, env={"LC_ALL": "C"}, note=note)
        return file.read_text(errors="replace") if done.succeeded else None


def same_code(first: Path, second: Path, ids: tuple[str, str] = ("", "")) -> bool:
    """True if two libraries have equal bytes without symbols, debug sections and linker ids.

    `ids`: their build ids, which are ignored. Raises OSError or subprocess.SubprocessError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bare = [Path(scratch) / name for name in ("one", "other")]
        for library, into in zip((first, second), bare, strict=True):
            command = ["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", str(library), str(into)]
            subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        read = [path.read_bytes().replace(id_.encode(), b"") for path, id_ in zip(bare, ids, strict=True)]
        return read[0] == read[1]


def is_same_build(first: Build, second: Build) -> bool:
    """True if two builds differ only in comments, names and debug data. False if unreadable."""
    paths = Path(first.library), Path(second.library)
    try:
        return same_code(*paths, (first.build_id, second.build_id)) if first.compiled else same_statements(*paths)
    except (OSError, subprocess.SubprocessError):
        return False


ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(?P<symbol>[^']+)' for '(?P<architecture>sm_\w+)'")
FUNCTION = re.compile(r"ptxas info\s*: Function properties for '?(?P<symbol>[^\s']+)'?")
STACK = re.compile(
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
USED = re.compile(r"ptxas info\s*: Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
CUT = re.compile(r"^\.\.\. \d+ bytes left out \.\.\.$", re.MULTILINE)
REPORT_FLAGS = {"-res-usage", "--resource-usage"}
PTXAS_FLAGS = ("-Xptxas", "--ptxas-options")
ASK = "add `-Xptxas -v` to its `build.flags`"


def made_by_nvcc(recipe: BuildRecipe) -> bool:
    """True if the recipe's compiler is nvcc."""
    return Path(recipe.compiler).name == "nvcc"


def asks_for_report(flags: Sequence[str]) -> bool:
    """True if flags ask for the resource report: `-Xptxas -v`, `-Xptxas=-v`, `-res-usage`."""
    words: list[str] = []
    for before, flag in zip(["", *flags], flags, strict=False):
        name, _, value = flag.partition("=")
        words += [value] if name in PTXAS_FLAGS else [flag] if before in PTXAS_FLAGS else []
    options = {option for word in words for option in word.split(",")}
    return bool(options & {"-v", "--verbose"} or REPORT_FLAGS & set(flags))


def parse_report(log: str) -> tuple[KernelResources, ...]:
    """Resources of each kernel in a compiler's log, by mangled name; empty without a report.

    Includes device functions that have a stack frame or spill.
    """
    kernels: dict[tuple[str, str], KernelResources] = {}
    architecture = entry = function = ""

    def note(symbol: str, **facts: int) -> None:
        key, name = (architecture, symbol), symbol
        if architecture:
            base = KernelResources(symbol=symbol, name=name, architecture=architecture, entry=False)
            kernels[key] = kernels.get(key, base).model_copy(update=facts)

    for line in log.splitlines():
        if match := ENTRY.match(line):
            architecture, entry = match["architecture"], match["symbol"]
            note(entry, entry=True)
        elif match := FUNCTION.match(line):
            function = match["symbol"]
        elif match := STACK.match(line):
            stores, loads = int(match["stores"]), int(match["loads"])
            note(function, stack_bytes=int(match["stack"]), spill_stores=stores, spill_loads=loads)
        elif match := USED.match(line):
            shared = SHARED.search(line)
            registers = int(match["registers"])
            note(entry, registers=registers, shared_bytes=int(shared[1]) if shared else 0)
    return tuple(kernel for kernel in kernels.values() if kernel.entry or kernel.stack_bytes or kernel.spill_bytes)


def read_report(build: Build) -> Generator[Tick, None, tuple[tuple[KernelResources, ...], bool]]:
    """Resources of a build's kernels from its log, for each architecture, with demangled names.

    The second value is True if the log was cut, so that kernels may be missing.
    """
    path = Path(build.library).parent / LOG
    log = path.read_text(errors="replace") if path.is_file() else ""
    kernels = parse_report(log)
    names = yield from demangle([kernel.symbol for kernel in kernels])
    named = tuple(kernel.model_copy(update={"name": names[kernel.symbol]}) for kernel in kernels)
    return named, bool(CUT.search(log))
