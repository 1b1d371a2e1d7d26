"""Resources of compiled kernels, their launches, and how many blocks fit on a GPU."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.target import Workload

Dim3 = tuple[int, int, int]


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


class KernelLaunch(Model):
    """One kernel launch that a variant's host code made in a dry run."""

    kernel: str
    grid: Dim3
    block: Dim3
    shared: Annotated[int, Field(ge=0)]
    shared_static: Annotated[int, Field(ge=0)] = 0
    """Bytes of static shared memory per block, as the emulator knows; the compiler reports them exactly."""

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


class WorkloadLaunches(Model):
    """The launches of one call, found in a dry run."""

    workload: Workload
    status: Literal["told", "declined", "lost"]
    """`told`: launches known; `declined`: error returned; `lost`: the process died, later calls too."""
    launches: tuple[KernelLaunch, ...] = ()
    why: str = ""


class Placement(Model):
    """Occupancy of one launch shape: how many such blocks fit on a multiprocessor."""

    variant: str
    kernel: str
    symbol: str
    blocks: int = Field(default=0, exclude=True)
    """Blocks of the launch, in its whole grid."""
    threads: int
    shared_bytes: int
    registers: int | None
    resident: int
    """Blocks resident on one multiprocessor at a time; 0 if the kernel cannot be launched."""
    limited_by: str
    workload: str
    timed: bool = False


class CompiledLibrary(Model):
    """The compiler's report on one built library."""

    variants: tuple[str, ...]
    build_id: str
    architecture: str
    kernels: tuple[KernelResources, ...]
    """Kernels for this architecture, and device functions that use the stack."""
