"""What a GPU would do with compiled kernels: resources by the compiler's report, launches, and how they fit."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.target import Workload

Three = tuple[int, int, int]


class KernelResources(Model):
    """What one compiled kernel takes, by ptxas."""

    symbol: str
    name: str
    """Demangled name with parameters; the mangled one where there is no c++filt."""
    architecture: str
    entry: bool = True
    """Whether it can be launched; false for a function that kernels call."""
    registers: int | None = None
    spill_stores: int = 0
    """Bytes of registers that it stores for want of room, each store counted once."""
    spill_loads: int = 0
    stack_bytes: int = 0
    shared_bytes: int = 0

    @property
    def spill_bytes(self) -> int:
        """Bytes of registers spilled: those stored, or loaded where none is."""
        return self.spill_stores or self.spill_loads

    @property
    def short(self) -> str:
        """Its name without return type and parameters."""
        return short_name(self.name)


def short_name(name: str) -> str:
    """A demangled name without return type, parameters and `(anonymous namespace)::`."""
    text, depth, begin = name.replace("(anonymous namespace)::", ""), 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter == " ":
            begin = place + 1
        if depth == 0 and letter == "(":
            return text[begin:place]
    return text[begin:]


class KernelLaunch(Model):
    """One launch, as the host code of a variant made it in a dry run."""

    kernel: str
    grid: Three
    block: Three
    shared: Annotated[int, Field(ge=0)]
    shared_static: Annotated[int, Field(ge=0)] = 0
    """Static shared memory of a block, where the emulator knows it; the compiler's report does."""

    @property
    def blocks(self) -> int:
        """Blocks launched."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


class WorkloadLaunches(Model):
    """What one call launches."""

    workload: Workload
    status: Literal["told", "declined", "lost"]
    """The host code told what it launches; it returned an error; or it could not be asked, nor any call after."""
    launches: tuple[KernelLaunch, ...] = ()
    why: str = ""


class Placement(Model):
    """One shape of launch on a GPU: how many such blocks a multiprocessor holds."""

    variant: str
    kernel: str
    symbol: str
    threads: int
    shared_bytes: int
    registers: int | None
    resident: int
    """Blocks that one multiprocessor holds at a time; 0 where the kernel cannot be launched."""
    limited_by: str
    workload: str
    workloads: int
    timed: bool = False


class CompiledLibrary(Model):
    """The compiler's report on one built library."""

    variants: tuple[str, ...]
    build_id: str
    architecture: str
    kernels: tuple[KernelResources, ...]
    """Its kernels for that architecture, and functions of theirs that use the stack."""
