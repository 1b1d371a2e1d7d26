"""Tools that read what a compiler made: names of symbols, symbols of libraries, and where disassemblers are."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.processes import Completed, Tick, run

LIMIT_S = 60.0
NAMES_AT_A_TIME = 500
STATIC = re.compile(r"__nv_static_(\d+)_")
"""How nvcc prefixes kernels with internal linkage in relocatable code: a number, then so many characters."""
BINUTILS = "install binutils (Debian and Ubuntu: `apt-get install binutils`)"
DISASSEMBLERS = "`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`, or put the toolkit's own on the PATH"
"""What mends their absence."""


def demangle(symbols: Sequence[str]) -> Generator[Tick, None, dict[str, str]]:
    """Symbol to its name in C++; to itself where there is no c++filt."""
    plain = {symbol: _own(symbol) for symbol in symbols}
    if not symbols or shutil.which("c++filt") is None:
        return plain
    found: list[str] = []
    for first in range(0, len(symbols), NAMES_AT_A_TIME):
        some = [plain[symbol] for symbol in symbols[first : first + NAMES_AT_A_TIME]]
        done = yield from run(["c++filt", *some], limit_s=LIMIT_S, note="reading names")
        found += done.output.splitlines()
    return dict(zip(symbols, found, strict=True)) if len(found) == len(symbols) else plain


def _own(symbol: str) -> str:
    """A symbol without the prefix that nvcc puts before those of internal linkage."""
    found = STATIC.match(symbol)
    return symbol[found.end() + int(found[1]) + 1 :] if found else symbol


def defined_names(library: Path) -> Generator[Tick, None, tuple[str, ...] | None]:
    """Demangled names of everything that a library defines, exported or not; None where there is no nm."""
    if shutil.which("nm") is None:
        return None
    names: dict[str, None] = {}
    for more in ([], ["-D"]):  # A stripped library has its dynamic symbols left.
        text = yield from whole_output(["nm", "-C", "--defined-only", *more, str(library)], "reading symbols")
        rows = (line.split(maxsplit=2) for line in (text or "").splitlines())
        names |= {row[2]: None for row in rows if len(row) > 2}
    return tuple(names)


def whole_output(command: Sequence[str], note: str, more_path: str = "") -> Generator[Tick, None, str | None]:
    """All that a command prints, however long; None where it fails.

    `more_path`: a folder where it finds programs of its own.
    """
    path = os.pathsep.join(filter(None, [more_path, os.environ.get("PATH", "")]))
    with tempfile.TemporaryDirectory(prefix="loop-reading-") as folder:
        file = Path(folder) / "output"
        to_file = ["sh", "-c", 'exec "$@" > "$0"', str(file), *command]
        done: Completed = yield from run(to_file, limit_s=LIMIT_S, env={"PATH": path, "LC_ALL": "C"}, note=note)
        return file.read_text(errors="replace") if done.ok else None


@dataclass(frozen=True)
class Disassembler:
    """NVIDIA's tools that show machine code; the one starts the other."""

    cuobjdump: Path
    nvdisasm: Path


def disassembler() -> Disassembler | None:
    """Where they are: on the PATH, or in NVIDIA's packages from PyPI; None where one is missing."""
    cuobjdump, nvdisasm = _tool("cuobjdump"), _tool("nvdisasm")
    return Disassembler(cuobjdump, nvdisasm) if cuobjdump and nvdisasm else None


def _tool(name: str) -> Path | None:
    on_path = shutil.which(name)
    return Path(on_path) if on_path else _packaged(name)


@functools.cache
def _packaged(name: str) -> Path | None:
    for place in sys.path:
        for path in sorted(Path(place or ".").glob(f"nvidia/*/bin/{name}")):
            if os.access(path, os.X_OK):
                return path
    return None


def same_code(one: Path, other: Path) -> bool:
    """Whether two libraries are the same bytes without symbol tables, debug sections and the linker's own id.

    Raises OSError or subprocess.SubprocessError where they cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bare = [Path(scratch) / name for name in ("one", "other")]
        for library, into in zip((one, other), bare, strict=True):
            command = ["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", str(library), str(into)]
            subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        return bare[0].read_bytes() == bare[1].read_bytes()
