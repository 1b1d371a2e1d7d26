"""A profile: facts of one variant on one workload, the rules that read them, and what they lead to."""

from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from loop.base.expressions import Expression, ExpressionError
from loop.base.ratios import times
from loop.model.base import Model
from loop.model.device_profile import DeviceProfile
from loop.model.pattern import Text
from loop.model.verdict import Interval

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
    "instructions": "instructions of one call",
    "ipc": "instructions a cycle",
    "cache_misses": "misses of the last cache in one call",
    "dram": "share of the device memory's peak throughput in use",
    "sm": "share of the multiprocessors' peak throughput in use",
    "warps_active": "share of the warps that the multiprocessors could hold",
    "bank_conflicts": "share of the shared-memory wavefronts that are bank conflicts",
    "stall": "what warps wait for most",
}
"""What a rule may read: name to meaning. A fact may be unknown, which is neither zero nor false."""

Fact = bool | int | float | str | None


def _condition(text: str) -> str:
    """A rule's condition. Raises ValueError with both sides where it cannot be read, or reads what is no fact."""
    try:
        names = Expression.parse(text).names
    except ExpressionError as error:
        place = f" at column {error.column} of it" if error.column else ""
        raise ValueError(f"expected {error.expected}, got {error.got}{place}") from error
    for name in sorted(names - FACTS.keys()):
        close = get_close_matches(name, FACTS, n=1) or list(FACTS)
        raise ValueError(f"expected a fact, as {close[0]!r}, got {name!r}")
    return text


Condition = Annotated[str, AfterValidator(_condition)]
"""An expression over facts; arithmetic is allowed."""


Bound = Annotated[float, Field(gt=0)] | Condition
"""A number, or a formula over facts, as in `1 / flops_share`."""


Basis = Literal["change", "later session"]


class Promise(Model):
    """The gain that a leaf of the decision tree promises."""

    advice: str
    """The leaf: its bottleneck."""
    stated: Interval
    """What the rule says: lowest and highest ratio of speeds, after over before; 1.2 is 20 % faster."""

    @property
    def text(self) -> str:
        """`1.1x to 1.2x`."""
        return " to ".join(map(times, self.stated))


class Promised(Model):
    """A promise of one session, which a later one can be held against."""

    promise: Promise
    variant: str
    workload: str
    build: str
    ratio: Annotated[float, Field(gt=0)]
    """Its speed there, against the baseline."""


class GainOutcome(Model):
    """What came of one promise."""

    promise: Promise
    variant: str
    workload: str
    actual: Annotated[float, Field(gt=0)]
    """Ratio of speeds there, after over before."""
    basis: Basis
    """Timed side by side as a change, or in a later session, each against the baseline."""
    session: str = ""

    @property
    def side(self) -> str:
        """`inside` the stated interval, `below` it or `above` it."""
        low, high = self.promise.stated
        return "below" if self.actual < low else "above" if self.actual > high else "inside"


class TreeRule(Model):
    """A leaf of the decision tree, and when it is reached: the first that matches is taken."""

    when: Condition
    """Expression over facts. It cannot match where it has to read an unknown one."""
    bottleneck: Text
    """What holds the kernel back, in a word or two."""
    fix: Text
    """What to do about it."""
    gain: Text
    """What that may bring."""
    times: tuple[Bound, Bound] | None = None
    """The same as an interval: lowest and highest ratio of speeds, after over before. Absent: it states none."""


class SeverityRule(Model):
    """How urgent a result is, and what to look with: the first that matches is taken."""

    when: Condition
    """Expression over facts."""
    severity: Text
    """How urgent it is."""
    tool: Text
    """What to look with, or that nothing is to be done."""


class Profile(Model):
    """Why one variant is as fast as it is on the workload where it does worst."""

    variant: str
    workload: str
    facts: dict[str, Fact]
    """Everything in the table of facts; None is unknown."""
    sources: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, str] = Field(default_factory=dict)
    severity: str | None
    """How urgent it is; None where no rule matched, so that it may be left alone."""
    tool: str | None
    """What to look with."""
    bottleneck: str | None
    when: str | None
    """The condition that matched."""
    fix: str | None
    gain: str | None
    promise: Promise | None = None
    """The same as an interval, with what came of such advice before; None where the rule states none."""
    undecided: tuple[str, ...] = ()
    """Rules before the one that matched which read an unknown fact."""
    watched: DeviceProfile | None = None
    """One call as a profiler of the GPU saw it; None without a GPU, or where none could look."""


class Occupancy(Model):
    """How far one launch fills the device."""

    variant: str
    workload: str
    on: str
    """Threads of this machine, or the GPU reckoned with."""
    at_hand: bool
    """Whether the session runs on that device."""
    items: int
    """Blocks launched, or pieces of work."""
    units: int
    """Multiprocessors or threads."""
    resident: int
    """Blocks that one multiprocessor holds at a time; 1 for a thread; 0 where a block does not fit at all."""
    limited_by: str
    """What keeps more blocks from being resident."""
    share: float
    """Share of the places that are taken in the fullest moment."""
    waves: float
    """Items over places: below 1 the device is never full."""
    used: float
    """Items over the places of all waves, the last one included: the most of the device that can be in use."""
    unknown: tuple[str, ...] = ()
    """Resources that nobody declared: with them fewer blocks may fit."""
    kernel: str = ""
    """The kernel, where the host code told what it launches; empty for a launch that is declared."""

    @property
    def starved(self) -> bool:
        """Whether places stay empty."""
        return self.share < 1
