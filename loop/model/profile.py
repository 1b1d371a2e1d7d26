"""A profile: facts of one variant on one workload, the rules that read them, and what they lead to."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from loop.base.expressions import Expression, ExpressionError
from loop.base.stats import times
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.plan import Text
from loop.model.verdict import Interval


class DeviceFacts(Model):
    """What a GPU can do: as a manifest lists it, or as the driver of the one at hand says.

    What neither tells is unknown: 0, or no peak. No figure of another GPU stands in its place.
    """

    name: Text
    sms: Annotated[int, Field(ge=1)]
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
    sizes, cards = [], []
    for text in (name, driver_name):
        words = set(re.split(r"[\s-]+", text.upper().strip()))
        sizes.append({word for word in words if MEMORY.fullmatch(word)})
        cards.append({word for word in words - sizes[-1] if not ANY_CARD.fullmatch(word)})
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

    `FACTS` says what its shares are of. Of several launches, time is their sum, registers the most of any, and
    shares are means by time.
    """

    kernel: str
    launches: int = 1
    us: float | None = None
    registers: int | None = None
    dram: float | None = None
    sm: float | None = None
    warps_active: float | None = None
    bank_conflicts: float | None = None
    stalls: dict[str, float] = Field(default_factory=dict)
    """What its warps waited for: reason to the share of a warp's time."""


class DeviceProfile(Model):
    """One call of a variant as a profiler saw it on the device."""

    by: Literal["ncu", "torch's profiler"]
    kernels: tuple[KernelRun, ...]
    launches: int
    us: float | None = None
    """Microseconds of all launches together, without what lies between them; None where a time is missing."""
    cut: bool = False
    """Whether the call may launch more than were looked at."""

    @property
    def longest(self) -> KernelRun:
        """The kernel that took longest."""
        return self.kernels[0]


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

    def came_to(self, ratio: float, session: str) -> "GainOutcome":
        """What a later session says of it, by the speed that it measured there against the baseline."""
        return GainOutcome(
            promise=self.promise,
            variant=self.variant,
            workload=self.workload,
            actual=ratio / self.ratio,
            basis="later session",
            session=session,
        )


class GainOutcome(Model):
    """What came of one promise."""

    promise: Promise
    variant: str
    workload: str
    actual: Annotated[float, Field(gt=0)]
    basis: Basis
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
    gain: Text
    times: tuple[Bound, Bound] | None = None
    """The same as an interval: lowest and highest ratio of speeds, after over before. Absent: it states none."""

    def promise(self, facts: Mapping[str, Fact]) -> Promise | None:
        """What it promises; None where it states no interval, or one that unknown facts decide."""
        known = {name: value for name, value in facts.items() if value is not None}
        try:
            ends = [Expression.parse(str(end)).evaluate_number(known) for end in self.times or ()]
        except ExpressionError:
            return None
        if not ends or not 0 < ends[0] <= ends[1]:
            return None
        return Promise(advice=self.bottleneck, stated=(ends[0], ends[1]))


class SeverityRule(Model):
    """How urgent a result is, and what to look with: the first that matches is taken."""

    when: Condition
    severity: Text
    tool: Text
    """What to look with, or that nothing is to be done."""


class Profile(Model):
    """Why one variant is as fast as it is on the workload where it does worst."""

    variant: str
    workload: str
    facts: dict[str, Fact]
    sources: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, str] = Field(default_factory=dict)
    severity: str | None
    """How urgent it is; None where no rule matched, so that it may be left alone."""
    tool: str | None
    bottleneck: str | None
    when: str | None
    fix: str | None
    gain: str | None
    promise: Promise | None = None
    """The same as an interval, with what came of such advice before; None where the rule states none."""
    undecided: tuple[str, ...] = ()
    """Rules before the one that matched which read an unknown fact."""
    watched: DeviceProfile | None = None


class Occupancy(Model):
    """How far one launch fills the device."""

    variant: str
    workload: str
    on: str
    """Threads of this machine, or the GPU reckoned with."""
    at_hand: bool
    items: int
    """Blocks launched, or pieces of work."""
    units: int
    resident: int
    """Blocks that one multiprocessor holds at a time; 1 for a thread; 0 where a block does not fit at all."""
    limited_by: str
    share: float
    """Share of the places that are taken in the fullest moment."""
    waves: float
    """Items over places: below 1 the device is never full."""
    used: float
    """Items over the places of all waves, the last one included: the most of the device that can be in use."""
    unknown: tuple[str, ...] = ()
    """Resources that nobody declared: with them fewer blocks may fit."""
    kernel: str = ""

    @property
    def starved(self) -> bool:
        """Whether places stay empty."""
        return self.share < 1
