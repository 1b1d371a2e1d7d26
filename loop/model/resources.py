"""What a GPU would do with compiled kernels: resources by the compiler's report, launches, and how they fit."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.target import Workload

Three = tuple[int, int, int]


class HotLoop(Model):
    """The innermost loop of a kernel in which its tensor cores work, as the machine code has it."""

    instructions: int
    """Instructions from the target of its backward branch to the branch."""
    tensor: int
    """Matrix instructions (HMMA and its kin) among them."""

    @property
    def share(self) -> float:
        """Share of matrix instructions."""
        return self.tensor / self.instructions


class KernelResources(Model):
    """What one compiled kernel takes, by ptxas."""

    symbol: str
    """Mangled name."""
    name: str
    """Demangled name with parameters; the mangled one where there is no c++filt."""
    architecture: str
    """What it was compiled for, as in `sm_89`."""
    entry: bool = True
    """Whether it can be launched; false for a function that kernels call."""
    registers: int | None = None
    """Registers a thread; None for a function that is no entry."""
    spill_stores: int = 0
    """Bytes of registers that it stores for want of room, each store counted once."""
    spill_loads: int = 0
    """Bytes that it loads again, likewise."""
    stack_bytes: int = 0
    """Stack frame of a thread."""
    shared_bytes: int = 0
    """Static shared memory of a block."""
    loop: HotLoop | None = None
    """Its hot loop; None without matrix instructions in a loop, or without a disassembler."""

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
    """Mangled name of the kernel."""
    grid: Three
    """Blocks along x, y and z."""
    block: Three
    """Threads of a block along x, y and z."""
    shared: Annotated[int, Field(ge=0)]
    """Dynamic shared memory of a block."""
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
    """The call."""
    status: Literal["told", "declined", "lost"]
    """The host code told what it launches; it returned an error; or it could not be asked, nor any call after."""
    launches: tuple[KernelLaunch, ...] = ()
    """In order."""
    remarks: tuple[str, ...] = ()
    """What the host code said of its choice."""
    why: str = ""
    """The error, or what went wrong."""


class Placement(Model):
    """One shape of launch on a GPU: how many such blocks a multiprocessor holds."""

    variant: str
    """Variant whose host code launches it."""
    kernel: str
    """The kernel, demangled, without parameters."""
    symbol: str
    """Its mangled name."""
    threads: int
    """Threads of a block."""
    shared_bytes: int
    """Shared memory of a block, static and dynamic."""
    registers: int | None
    """Registers a thread; None where no compiler told."""
    resident: int
    """Blocks that one multiprocessor holds at a time; 0 where the kernel cannot be launched."""
    limited_by: str
    """What keeps it from holding more."""
    workload: str
    """The first workload that launches it so."""
    workloads: int
    """How many workloads do."""
    timed: bool = False
    """Whether one of them is timed."""


class CompiledLibrary(Model):
    """The compiler's report on one built library."""

    variants: tuple[str, ...]
    """Variants that are in it."""
    build_id: str
    """Its build."""
    architecture: str
    """Code in it that the GPU would run, as in `sm_89`."""
    kernels: tuple[KernelResources, ...]
    """Its kernels for that architecture, and functions of theirs that use the stack."""


class BlocksHeld(Model):
    """How much of one launch a multiprocessor holds at a time."""

    blocks: int
    """Blocks."""
    warps: int
    """Warps of these blocks."""
    shared_bytes: int
    """Shared memory of a block, static and dynamic."""
    limited_by: str
    """What keeps it from holding more."""


class KernelTakes(Model):
    """What one kernel takes, as one session is compared with another."""

    kernel: str
    """Its demangled name."""
    registers: int | None
    """Registers a thread; None for a function that kernels call."""
    spill_stores: int
    """Bytes of registers that it stores for want of room."""
    spill_loads: int
    """Bytes that it loads again."""
    held: dict[str, BlocksHeld]
    """Call to its launch. Where no host code tells of one: the empty text to a block of 128 threads."""


class ResourcesTaken(Model):
    """What the kernels of one variant take on one kind of GPU, by one compiler."""

    variant: str
    """Name of the variant."""
    device: str
    """What it was compiled for, as in `sm_89`."""
    compiler: str
    """Version of the compiler."""
    kernels: tuple[KernelTakes, ...]
    """Its kernels."""


class Rise(Model):
    """A resource of which a kernel takes more than it did, to its harm."""

    variant: str
    """Name of the variant."""
    kernel: str
    """The kernel, demangled, without parameters."""
    resource: Literal["spill stores", "spill loads", "registers", "shared memory"]
    """What it takes more of."""
    before: int
    """Bytes, or registers, that it took."""
    now: int
    """And takes."""
    warps: tuple[int, int] | None = None
    """Warps that a multiprocessor held, and holds; None for spills."""

    @property
    def spilled(self) -> bool:
        """Whether it is of spills."""
        return self.warps is None

    @property
    def key(self) -> tuple[str, str]:
        """Kernel and resource."""
        return self.kernel, self.resource

    @property
    def text(self) -> str:
        """`registers of rows<float> rose from 40 to 72: 28 warps a multiprocessor instead of 48`."""
        unit = "" if self.resource == "registers" else " bytes"
        fall = f": {self.warps[1]} warps a multiprocessor instead of {self.warps[0]}" if self.warps else ""
        return f"{self.resource} of {self.kernel} rose from {self.before} to {self.now}{unit}{fall}"
