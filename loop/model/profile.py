"""A profile: facts of one variant on one workload, rules over these facts, and their advice."""

from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from loop.base.expressions import Expression, ExpressionError
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.plan import Text


class DeviceFacts(Model):
    """Limits and peaks of a GPU, from a manifest (datasheet) or from the driver of this machine's
    GPU. 0 or a missing peak means unknown. Values of another GPU never replace it."""

    name: Text
    sms: Annotated[int, Field(ge=1)]
    shared_per_sm: Annotated[int, Field(ge=0)]
    """Bytes of shared memory per multiprocessor, for all its blocks."""
    shared_per_block: Annotated[int, Field(ge=0)]
    """Maximum bytes of shared memory per block, requested at launch."""
    shared_static: Annotated[int, Field(ge=0)]
    """Maximum bytes of static shared memory per block."""
    registers_per_sm: Annotated[int, Field(ge=1)]
    """32-bit registers per multiprocessor."""
    threads_per_sm: Annotated[int, Field(ge=1)]
    """Maximum resident threads per multiprocessor."""
    blocks_per_sm: Annotated[int, Field(ge=1)]
    """Maximum resident blocks per multiprocessor."""
    l2_bytes: Annotated[int, Field(ge=0)]
    bytes_per_s: Annotated[float, Field(ge=0)]
    """Peak memory bandwidth in bytes per second; 0: unknown."""
    flops_per_s: dict[Dtype, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Element type to dense peak FLOP/s of the fastest units (tensor cores); from no driver."""
    clock_hz: Annotated[float, Field(ge=0)] = 0.0
    """Maximum clock of the multiprocessors in Hz; 0: unknown."""

    @property
    def source(self) -> str:
        """Source of the values, in words: datasheet or driver."""
        if self.flops_per_s:
            return f"datasheet of {self.name}"
        return f"the driver of {self.name}, which tells no peak"


class KernelRun(Model):
    """Profiler data of all launches of a kernel in one call. None: not reported. `FACTS` defines
    the shares: averages weighted by time. `us` is the sum, `registers` the maximum."""

    kernel: str
    launches: int = 1
    us: float | None = None
    registers: int | None = None
    dram: float | None = None
    sm: float | None = None
    warps_active: float | None = None
    bank_conflicts: float | None = None
    stalls: dict[str, float] = Field(default_factory=dict)
    """Stall reason to the share of a warp's time."""


class DeviceProfile(Model):
    """Profiler data of one call of a variant."""

    by: Literal["ncu", "torch's profiler"]
    kernels: tuple[KernelRun, ...]
    """The longest first."""
    launches: int
    us: float | None = None
    """Total microseconds of all launches, without gaps between them; None if a time is missing."""
    cut: bool = False
    """Whether the call may have more launches than were profiled."""


FACTS: dict[str, str] = {
    "device": "where it ran: cpu or cuda",
    "ratio": "baseline's time over the variant's",
    "time_us": "microseconds of one call",
    "flops": "counted operations of one call",
    "bytes": "bytes that one call must move at least",
    "intensity": "flops over bytes",
    "flops_share": "operations a second over what the device reaches",
    "bandwidth_share": "bytes a second over what the device reaches",
    "roof": "what bounds a call of this intensity: compute or memory",
    "work_items": "pieces of work that may run at the same time",
    "units": "threads, or multiprocessors",
    "slots": "pieces that the units hold at a time",
    "vectorised": "loops that the compiler vectorised by itself",
    "vector_share": "share of its floating-point instructions that work on whole vectors",
    "dram": "share of the device memory's peak throughput in use",
    "sm": "share of the multiprocessors' peak throughput in use",
    "warps_active": "share of the warps that the multiprocessors could hold",
    "bank_conflicts": "share of the shared-memory wavefronts that are bank conflicts",
    "stall": "what warps wait for most",
}
"""Facts that rules can read: name to meaning. An unknown fact is None, neither zero nor false."""

Fact = bool | int | float | str | None


def _validate_condition(text: str) -> str:
    """A rule's condition. Raises ValueError if it does not parse or reads an unknown fact."""
    try:
        names = Expression.parse(text).names
    except ExpressionError as error:
        place = f" at column {error.column} of it" if error.column else ""
        raise ValueError(f"expected {error.expected}, got {error.got}{place}") from error
    for name in sorted(names - FACTS.keys()):
        suggestions = get_close_matches(name, FACTS, n=1) or list(FACTS)
        raise ValueError(f"expected a fact, as {suggestions[0]!r}, got {name!r}")
    return text


Condition = Annotated[str, AfterValidator(_validate_condition)]
"""An expression over `FACTS`, with arithmetic."""


class TreeRule(Model):
    """A leaf of the decision tree with its condition. The first matching rule applies."""

    when: Condition
    """Expression over facts. It does not match if it reads an unknown fact."""
    bottleneck: Text
    fix: Text
    gain: Text


class SeverityRule(Model):
    """Severity of a result and the tool to use. The first matching rule applies."""

    when: Condition
    severity: Text
    tool: Text
    """The tool to inspect it with, or the statement that nothing needs to be done."""


class Profile(Model):
    """Bottleneck analysis of one variant on its worst workload, with the advice of the rules."""

    variant: str
    workload: str
    facts: dict[str, Fact]
    sources: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, str] = Field(default_factory=dict)
    severity: str | None
    """Severity; None if no rule matched, so nothing needs to be done."""
    tool: str | None
    bottleneck: str | None
    when: str | None
    fix: str | None
    gain: str | None
    undecided: tuple[str, ...] = ()
    """Rules before the matching one that could not be decided, because a fact is unknown."""
    watched: DeviceProfile | None = None
