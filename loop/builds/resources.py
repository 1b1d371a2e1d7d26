"""Resources of kernels by the compiler's report: registers, spills, stack, shared memory.

nvcc's assembler prints the report with `-Xptxas -v`; the build stores it next to the library.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from loop.base.processes import output_of
from loop.builds.build import has_same_statements
from loop.builds.known_builds import LOG
from loop.model.base import Model
from loop.model.measurement import Build
from loop.model.target import BuildRecipe

LIMIT_S = 60.0
STATIC_PREFIX = re.compile(r"__nv_static_(\d+)_")
"""nvcc's prefix for internal kernels in relocatable code: a length, then as many characters."""
BINUTILS = "install binutils (Debian and Ubuntu: `apt-get install binutils`)"


class KernelResources(Model):
    """Resources of one compiled kernel, reported by ptxas."""

    symbol: str
    name: str
    """Demangled name with parameters; the mangled name if c++filt is missing."""
    architecture: str
    entry: bool = True
    """True for a kernel; False for a device function that kernels call."""
    registers: int | None = None
    spill_stores: int = 0
    """Bytes of registers spilled by store instructions in the code."""
    spill_loads: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        """Spilled bytes: those stored, or if none are stored, those loaded."""
        return self.spill_stores or self.spill_loads

    @property
    def short_name(self) -> str:
        """The kernel's name without return type and parameters."""
        return short_name(self.name)


def short_name(name: str) -> str:
    """A demangled name without return type, parameters and namespace `(anonymous namespace)`."""
    text, template_depth, begin = name.replace("(anonymous namespace)::", ""), 0, 0
    for index, letter in enumerate(text):
        template_depth += (letter == "<") - (letter == ">")
        if template_depth == 0 and letter == " ":  # The end of the return type.
            begin = index + 1
        if template_depth == 0 and letter == "(":  # The begin of the parameters.
            return text[begin:index]
    return text[begin:]


def demangle_symbols(symbols: Sequence[str]) -> dict[str, str]:
    """Symbol to its demangled C++ name; unchanged if there is no c++filt."""
    name_by_symbol = {}
    for symbol in symbols:
        prefix = STATIC_PREFIX.match(symbol)
        name_by_symbol[symbol] = symbol[prefix.end() + int(prefix[1]) + 1 :] if prefix else symbol
    output = output_of(["c++filt"], stdin="\n".join(name_by_symbol.values()), limit_s=LIMIT_S)
    names = (output or "").splitlines()
    return dict(zip(symbols, names, strict=True)) if len(names) == len(symbols) else name_by_symbol


def read_defined_names(library: Path) -> tuple[str, ...] | None:
    """Demangled names of all symbols that a library defines; None if there is no nm."""
    if shutil.which("nm") is None:
        return None
    names: dict[str, None] = {}
    for options in ([], ["-D"]):  # A stripped library still has dynamic symbols.
        text = output_of(["nm", "-C", "--defined-only", *options, str(library)], limit_s=LIMIT_S)
        rows = (line.split(maxsplit=2) for line in (text or "").splitlines())
        names |= {row[2]: None for row in rows if len(row) > 2}
    return tuple(names)


def has_same_code(first: Path, second: Path, ids: tuple[str, str] = ("", "")) -> bool:
    """True if two libraries have equal bytes without symbols, debug sections and linker ids. `ids`:
    build ids in their bytes, which are ignored. Raises OSError or subprocess.SubprocessError."""
    with tempfile.TemporaryDirectory() as scratch:
        contents, stripped = [], Path(scratch) / "stripped"
        for library, build_id in zip((first, second), ids, strict=True):
            options = ["--strip-all", "--remove-section=.note.gnu.build-id"]
            command = ["objcopy", *options, str(library), str(stripped)]
            subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
            contents.append(stripped.read_bytes().replace(build_id.encode(), b""))
        return contents[0] == contents[1]


def is_same_build(first: Build, second: Build) -> bool:
    """True if two builds differ only in comments, names and debug data. False if unreadable."""
    paths = Path(first.library), Path(second.library)
    try:
        if first.compiled:
            return has_same_code(*paths, (first.build_id, second.build_id))
        return has_same_statements(*paths)
    except (OSError, subprocess.SubprocessError):
        return False


KERNEL_LINE = re.compile(r"ptxas info\s*: Compiling entry function '([^']+)' for '(sm_\w+)'")
FUNCTION_LINE = re.compile(r"ptxas info\s*: Function properties for '?([^\s']+)'?")
STACK_LINE = re.compile(r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill")
REGISTERS_LINE = re.compile(r"ptxas info\s*: Used (\d+) registers")
SHARED_BYTES = re.compile(r"(\d+) bytes smem")
OMISSION_LINE = re.compile(r"^\.\.\. \d+ bytes left out \.\.\.$", re.MULTILINE)
REPORT_FLAGS = {"-res-usage", "--resource-usage"}
PTXAS_FLAGS = ("-Xptxas", "--ptxas-options")
REPORT_HINT = "add `-Xptxas -v` to its `build.flags`"


def is_nvcc(recipe: BuildRecipe) -> bool:
    """True if the recipe's compiler is nvcc."""
    return Path(recipe.compiler).name == "nvcc"


def requests_report(flags: Sequence[str]) -> bool:
    """True if flags ask for the resource report: `-Xptxas -v`, `-Xptxas=-v`, `-res-usage`."""
    ptxas_words: list[str] = []
    for previous_flag, flag in zip(["", *flags], flags, strict=False):
        name, _, value = flag.partition("=")
        if name in PTXAS_FLAGS:
            ptxas_words.append(value)
        elif previous_flag in PTXAS_FLAGS:
            ptxas_words.append(flag)
    options = {option for word in ptxas_words for option in word.split(",")}
    return bool(options & {"-v", "--verbose"} or REPORT_FLAGS & set(flags))


def parse_report(log: str) -> tuple[KernelResources, ...]:
    """Resources of kernels, and of device functions with a stack frame or spill, in a compiler's
    log, with mangled names; empty without a report."""
    kernels: dict[tuple[str, str], KernelResources] = {}
    architecture = entry = function = ""
    for line in log.splitlines():
        symbol, fields = "", dict[str, int]()
        if match := KERNEL_LINE.match(line):
            entry, architecture = match.groups()
            symbol, fields = entry, {"entry": True}
        elif match := FUNCTION_LINE.match(line):
            function = match[1]
        elif match := STACK_LINE.match(line):
            stack, stores, loads = map(int, match.groups())
            symbol = function
            fields = {"stack_bytes": stack, "spill_stores": stores, "spill_loads": loads}
        elif match := REGISTERS_LINE.match(line):
            symbol, shared = entry, SHARED_BYTES.search(line)
            fields = {"registers": int(match[1]), "shared_bytes": int(shared[1]) if shared else 0}
        if fields and architecture:
            names = {"symbol": symbol, "name": symbol, "architecture": architecture}
            kernel = kernels.get((architecture, symbol)) or KernelResources(**names, entry=False)
            kernels[architecture, symbol] = kernel.model_copy(update=fields)
    parsed = kernels.values()
    return tuple(each for each in parsed if each.entry or each.stack_bytes or each.spill_bytes)


def read_report(build: Build) -> tuple[tuple[KernelResources, ...], bool]:
    """Resources of a build's kernels from its log, for each architecture, with demangled names. The
    second value is True if the log was cut, so that kernels may be missing."""
    path = Path(build.library).parent / LOG
    log = path.read_text(errors="replace") if path.is_file() else ""
    kernels = parse_report(log)
    names = demangle_symbols([kernel.symbol for kernel in kernels])
    named = tuple(kernel.model_copy(update={"name": names[kernel.symbol]}) for kernel in kernels)
    return named, bool(OMISSION_LINE.search(log))
