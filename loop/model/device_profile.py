"""What a GPU can do and cannot exceed, and what a profiler of it saw of one call."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.pattern import Text


class GpuLimits(Model):
    """What the driver says a GPU cannot exceed; 0 for what it does not say."""

    sms: int = 0
    """Multiprocessors."""
    clock_hz: float = 0.0
    """The highest clock of its multiprocessors."""
    bytes_per_s: float = 0.0
    """Of its memory: clock times bus width, twice a cycle."""
    l2_bytes: int = 0
    """Bytes of the second-level cache."""


class DeviceFacts(Model):
    """What a kind of GPU can do: limits, and peaks by its datasheet."""

    name: Text
    """Its name."""
    sms: Annotated[int, Field(ge=1)]
    """Multiprocessors."""
    shared_per_sm: Annotated[int, Field(ge=0)]
    """Bytes of shared memory that the blocks of one multiprocessor divide among themselves."""
    shared_per_block: Annotated[int, Field(ge=0)]
    """Bytes that one block may ask for at launch."""
    shared_static: Annotated[int, Field(ge=0)]
    """Bytes that one block may declare."""
    registers_per_sm: Annotated[int, Field(ge=1)]
    """Registers of 32 bits."""
    threads_per_sm: Annotated[int, Field(ge=1)]
    """Threads that one multiprocessor holds at a time."""
    blocks_per_sm: Annotated[int, Field(ge=1)]
    """Blocks that one multiprocessor holds at a time."""
    l2_bytes: Annotated[int, Field(ge=0)]
    """Bytes of the second-level cache."""
    bytes_per_s: Annotated[float, Field(gt=0)]
    """Peak of its memory."""
    flops_per_s: dict[Dtype, Annotated[float, Field(gt=0)]]
    """Peak by element type: dense, in the fastest units that multiply this type."""


class KernelRun(Model):
    """One launch as a profiler saw it; None for what it did not tell."""

    kernel: str
    """Name of the kernel, without return type and parameters."""
    us: float | None = None
    """Microseconds on the device."""
    registers: int | None = None
    """Registers a thread."""
    dram: float | None = None
    """Share of the device memory's peak throughput in use."""
    sm: float | None = None
    """Share of the multiprocessors' peak throughput in use."""
    warps_active: float | None = None
    """Share of the warps that the multiprocessors could hold, while they had any."""
    bank_conflicts: float | None = None
    """Share of the shared-memory wavefronts that are bank conflicts."""
    stalls: dict[str, float] = Field(default_factory=dict)
    """What its warps waited for: reason to the share of a warp's time."""


class KernelProfile(KernelRun):
    """All launches of one kernel in a call: time is their sum, registers the most of any, shares means by time."""

    launches: int
    """How often the call launched it."""


class DeviceProfile(Model):
    """One call of a variant as a profiler saw it on the device."""

    by: Literal["ncu", "torch's profiler"]
    """Who saw it."""
    kernels: tuple[KernelProfile, ...]
    """Its kernels, the one that took longest first."""
    launches: int
    """Launches in all."""
    us: float | None = None
    """Microseconds of all launches together, without what lies between them; None where a time is missing."""
    cut: bool = False
    """Whether the call may launch more than were looked at."""

    @property
    def longest(self) -> KernelProfile:
        """The kernel that took longest."""
        return self.kernels[0]
