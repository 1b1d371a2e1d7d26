"""What a profiler of the GPU saw of one call: its kernels, how busy they kept it, what their warps waited for."""

from typing import Literal

from pydantic import Field

from loop.model.base import Model


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


class KernelProfile(Model):
    """All launches of one kernel in a call; shares are means over them by their time."""

    kernel: str
    """Name of the kernel, without return type and parameters."""
    launches: int
    """How often the call launched it."""
    us: float | None = None
    """Microseconds of all these launches together; None where the profiler told no time."""
    registers: int | None = None
    """Registers a thread, the most of any launch."""
    dram: float | None = None
    """Share of the device memory's peak throughput in use."""
    sm: float | None = None
    """Share of the multiprocessors' peak throughput in use."""
    warps_active: float | None = None
    """Share of the warps that the multiprocessors could hold, while they had any."""
    bank_conflicts: float | None = None
    """Share of the shared-memory wavefronts that are bank conflicts."""
    stalls: dict[str, float] = Field(default_factory=dict)
    """What its warps waited for most, at most three reasons: to the share of a warp's time."""


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
