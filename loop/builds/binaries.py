"""Tools that read what a compiler made: names of symbols, symbols of libraries, and where disassemblers are."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.processes import Completed, Tick, run
from loop.base.remarks import remark
from loop.model.base import Model
from loop.model.resources import HotLoop

LIMIT_S = 60.0
NAMES_AT_A_TIME = 500
STATIC = re.compile(r"__nv_static_(\d+)_")
"""How nvcc prefixes kernels with internal linkage in relocatable code: a number, then so many characters."""
BINUTILS = "install binutils (Debian and Ubuntu: `apt-get install binutils`)"
DISASSEMBLERS = "`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`, or put the toolkit's own on the PATH"
"""What mends their absence."""


def demangle(symbols: Sequence[str]) -> Generator[Tick, None, dict[str, str]]:
    """Symbol to its name in C++; to itself where there is no c++filt."""
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


def same_code(first: Path, second: Path, ids: tuple[str, str] = ("", "")) -> bool:
    """Whether two libraries are the same bytes without symbol tables, debug sections and the linker's own id.

    `ids`: the build ids that they carry, where these differ. Raises OSError or subprocess.SubprocessError where
    they cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bare = [Path(scratch) / name for name in ("one", "other")]
        for library, into in zip((first, second), bare, strict=True):
            command = ["objcopy", "--strip-all", "--remove-section=.note.gnu.build-id", str(library), str(into)]
            subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        read = [path.read_bytes().replace(id_.encode(), b"") for path, id_ in zip(bare, ids, strict=True)]
        return read[0] == read[1]


FUNCTION = re.compile(r"\s*Function : (\S+)")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
"""Address, operation and operands of a line of `cuobjdump -sass`."""
ADDRESS = re.compile(r"\b0x([0-9a-f]+)\b")
PADDING = "NOP"


class Loops(Model):
    """The hot loops of a library, as they are kept beside it."""

    format: int = 1
    """Format number."""
    loops: dict[str, HotLoop]
    """Mangled name of each kernel to its loop."""


@dataclass
class Code:
    """One function's instructions, as far as loops are concerned."""

    tensor: list[bool] = field(default_factory=list)
    """Of each instruction, whether it is one of the tensor cores."""
    places: dict[int, int] = field(default_factory=dict)
    """Address to place in the list."""
    backward: list[tuple[int, int]] = field(default_factory=list)
    """Places of a backward branch's target and of the branch."""

    def add(self, address: int, operation: str, operands: str) -> None:
        """Take up one instruction."""
        here = self.places[address] = len(self.tensor)
        name = operation.split(".")[0]
        if name == PADDING:
            return
        self.tensor.append(name.endswith("MMA"))
        target = ADDRESS.search(operands) if name == "BRA" else None
        if target and int(target[1], 16) in self.places:
            self.backward.append((self.places[int(target[1], 16)], here))

    def loops(self) -> Iterator[tuple[int, int]]:
        """The loops with work for the tensor cores."""
        return ((first, last) for first, last in self.backward if any(self.tensor[first : last + 1]))


def hot_loops(
    library: Path, architecture: str, tools: Disassembler | None
) -> Generator[Tick, None, dict[str, HotLoop] | None]:
    """Mangled name of each kernel with such a loop to the loop; None where the library cannot be read.

    The result is kept beside the library, because reading machine code takes seconds.
    """
    cached = library.parent / f"loops-{architecture}.json"
    known = _kept(cached)
    if known is not None or tools is None:
        return known
    command = [str(tools.cuobjdump), "-sass", "-arch", architecture, str(library)]
    text = yield from whole_output(command, "reading machine code", str(tools.nvdisasm.parent))
    if text is None:
        return None
    loops = loops_of(text.splitlines())
    with contextlib.suppress(LoopError):  # A cache that cannot be written costs time, no more.
        sums.write_sealed(cached, Loops(loops=loops))
    return loops


def _kept(path: Path) -> dict[str, HotLoop] | None:
    """The stored loops; None where there are none, or where the file is damaged."""
    try:
        return dict(sums.read_sealed(Loops, path).loops)
    except OSError:
        return None
    except LoopError as error:
        remark(f"{error.message}; read from the machine code again")
        return None


def loops_of(lines: Iterable[str]) -> dict[str, HotLoop]:
    """Mangled name of each kernel to its hot loop, from the output of `cuobjdump -sass`."""
    codes: dict[str, Code] = {}
    code = Code()
    for line in lines:
        if function := FUNCTION.match(line):
            code = codes[function[1]] = Code()
        elif match := INSTRUCTION.match(line):
            code.add(int(match[1], 16), match[2], match[3])
    return {name: loop for name, code in codes.items() if (loop := _hot(code))}


def _hot(code: Code) -> HotLoop | None:
    """The innermost loop with most matrix instructions; of equals the shorter one, which masks nothing."""
    loops = set(code.loops())
    innermost = [
        (first, last)
        for first, last in loops
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in loops)
    ]
    candidates = [
        HotLoop(instructions=last - first + 1, tensor=sum(code.tensor[first : last + 1]))
        for first, last in innermost
    ]
    return max(candidates, key=lambda loop: (loop.tensor, -loop.instructions), default=None)
