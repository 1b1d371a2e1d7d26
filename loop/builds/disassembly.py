"""How much of a kernel's hot loop is work for the tensor cores, by the machine code."""

import contextlib
import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.base.remarks import remark
from loop.builds.binaries import Disassembler, whole_output
from loop.model.base import Model
from loop.model.resources import HotLoop

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

    What was found stays beside the library: machine code is read once, in seconds.
    """
    kept = library.parent / f"loops-{architecture}.json"
    known = _kept(kept)
    if known is not None or tools is None:
        return known
    command = [str(tools.cuobjdump), "-sass", "-arch", architecture, str(library)]
    text = yield from whole_output(command, "reading machine code", str(tools.nvdisasm.parent))
    if text is None:
        return None
    found = loops_of(text.splitlines())
    with contextlib.suppress(LoopError):  # A cache that cannot be written costs time, no more.
        sums.write_sealed(kept, Loops(loops=found))
    return found


def _kept(path: Path) -> dict[str, HotLoop] | None:
    """What stands there; None where nothing does, or where it is damaged: it is worked out again."""
    try:
        return dict(sums.read_sealed(Loops, path).loops)
    except OSError:
        return None
    except LoopError as error:
        remark(f"{error.message}; read from the machine code again")
        return None


def loops_of(lines: Iterable[str]) -> dict[str, HotLoop]:
    """The same, from what `cuobjdump -sass` printed."""
    codes: dict[str, Code] = {}
    code = Code()
    for line in lines:
        if function := FUNCTION.match(line):
            code = codes[function[1]] = Code()
        elif found := INSTRUCTION.match(line):
            code.add(int(found[1], 16), found[2], found[3])
    return {name: loop for name, code in codes.items() if (loop := _hot(code))}


def _hot(code: Code) -> HotLoop | None:
    """Of the innermost loops the one with most matrix instructions; of equals the shorter, which masks nothing."""
    loops = set(code.loops())
    innermost = [one for one in loops if not any(_inside(other, one) for other in loops)]
    found = [
        HotLoop(instructions=last - first + 1, tensor=sum(code.tensor[first : last + 1]))
        for first, last in innermost
    ]
    return max(found, key=lambda one: (one.tensor, -one.instructions), default=None)


def _inside(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and other[0] <= one[0] and one[1] <= other[1]
