"""What a session found, as a recipe expects it again: each with what it may differ by."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from loop.model.base import Model
from loop.model.dtypes import Layout
from loop.model.verdict import Interval


class ExpectedMachine(Model):
    """Where it was found: speeds and builds are compared only where these are the same."""

    expect: Literal["machine"] = "machine"
    """Kind of the line."""
    processor: str
    """Model of the processor."""
    cores: int
    """Cores that a process may use."""
    gpus: tuple[str, ...]
    """GPUs that the driver shows."""
    driver: str | None
    """Version of the NVIDIA driver."""
    torch: str | None
    """Version of torch."""


class ExpectedBuild(Model):
    """One library: `loop` builds it with this id, and the recipe's compiler line makes the same code."""

    expect: Literal["build"] = "build"
    """Kind of the line."""
    variant: str
    """A variant that is in it."""
    build_id: str
    """Hash of everything it is built from."""
    compiler: str
    """First line of the compiler's version text."""
    compiled: bool
    """Whether the recipe has its compiler line."""


class ExpectedCheck(Model):
    """One output, held against float64."""

    expect: Literal["check"] = "check"
    """Kind of the line."""
    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    seed: int
    """Seed of its values."""
    inputs: Layout
    """How its inputs lay in memory."""
    status: str
    """What came of it: has to be the same."""
    error: float | None
    """Largest absolute error; None where there was no finite output."""
    at_most: float | None
    """Error that a right output may have now: twice as much, or what the plain implementation had."""


class ExpectedSpeed(Model):
    """One speed against the baseline."""

    expect: Literal["speed"] = "speed"
    """Kind of the line."""
    variant: str
    """Name of the variant."""
    workload: str
    """Name of the workload."""
    ratio: float
    """Time of the baseline / time of the variant."""
    interval: Interval
    """Its 99 % confidence interval."""
    within: Interval
    """The same, wider by what two sessions may differ: today's interval has to meet it."""


class ExpectedKernel(Model):
    """What one compiled kernel takes of a GPU: has to be the same."""

    expect: Literal["kernel"] = "kernel"
    """Kind of the line."""
    variant: str
    """A variant that has it."""
    architecture: str
    """What it was compiled for."""
    symbol: str
    """Its mangled name."""
    registers: int | None
    """Registers a thread."""
    spill_bytes: int
    """Bytes of registers spilled."""
    shared_bytes: int
    """Static shared memory of a block."""


Expected = ExpectedMachine | ExpectedBuild | ExpectedCheck | ExpectedSpeed | ExpectedKernel
EXPECTED: TypeAdapter[Expected] = TypeAdapter(Annotated[Expected, Field(discriminator="expect")])
"""Reads one line."""
