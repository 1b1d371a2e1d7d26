"""What a GPU cannot exceed, and what a kind of GPU can do."""

from typing import Annotated

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
