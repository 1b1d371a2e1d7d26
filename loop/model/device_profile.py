"""What a GPU can do and cannot exceed, and what a profiler of it saw of one call."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.pattern import Text


class DeviceFacts(Model):
    """What a GPU can do: as a manifest lists it, or as the driver of the one at hand says.

    What neither tells is unknown: 0, or no peak. No figure of another GPU stands in its place.
    """

    name: Text
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
    bytes_per_s: Annotated[float, Field(ge=0)]
    """Peak of its memory; 0 where it is not known."""
    flops_per_s: dict[Dtype, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Peak by element type: dense, in the fastest units that multiply this type. Drivers do not tell it."""
    clock_hz: Annotated[float, Field(ge=0)] = 0.0
    """The highest clock of its multiprocessors; 0 where it is not known."""

    @property
    def source(self) -> str:
        """Where its figures are from."""
        return (
            f"datasheet of {self.name}" if self.flops_per_s else f"the driver of {self.name}, which tells no peak"
        )


ANY_CARD = re.compile(r"NVIDIA|TESLA|GEFORCE|GPU|SXM\d?|HBM\d\w?")
"""Words of a driver's name that tell no other card. `PCIe`, `NVL`, `MIG`, `Ti`, `Laptop` do."""
MEMORY = re.compile(r"\d+GI?B")


def same_card(name: str, driver_name: str) -> bool:
    """Whether two names are of one card: `NVIDIA H100` and `NVIDIA H100 80GB HBM3`, but no `NVIDIA H100 PCIe`.

    Sizes of memory differ only where both names tell one.
    """
    words_of = [set(re.split(r"[\s-]+", text.upper().strip())) for text in (name, driver_name)]
    sizes = [{word for word in words if MEMORY.fullmatch(word)} for words in words_of]
    cards = [
        {word for word in words - size if not ANY_CARD.fullmatch(word)}
        for words, size in zip(words_of, sizes, strict=True)
    ]
    return cards[0] == cards[1] and (sizes[0] == sizes[1] or not all(sizes))


def at_hand(
    listed: Mapping[str, DeviceFacts], capability: str | None, name: str, driver: DeviceFacts | None
) -> DeviceFacts | None:
    """Facts of the GPU at hand: the manifest's where it lists this very card, else its driver's."""
    sheet = listed.get(f"sm_{capability.replace('.', '')}") if capability else None
    if sheet is None or not same_card(sheet.name, name) or (driver is not None and driver.sms != sheet.sms):
        return driver
    return sheet


class KernelRun(Model):
    """One launch as a profiler saw it, or all launches of a kernel in a call; None for what it did not tell.

    Of several, time is their sum, registers the most of any, and shares are means by time.
    """

    kernel: str
    launches: int = 1
    us: float | None = None
    registers: int | None = None
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


class DeviceProfile(Model):
    """One call of a variant as a profiler saw it on the device."""

    by: Literal["ncu", "torch's profiler"]
    kernels: tuple[KernelRun, ...]
    """Its kernels, the one that took longest first."""
    launches: int
    us: float | None = None
    """Microseconds of all launches together, without what lies between them; None where a time is missing."""
    cut: bool = False
    """Whether the call may launch more than were looked at."""

    @property
    def longest(self) -> KernelRun:
        """The kernel that took longest."""
        return self.kernels[0]
