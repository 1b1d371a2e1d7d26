"""What the bench finds: builds, checks of correctness, and timings."""

from collections import Counter
from typing import Annotated, Literal, get_args

from pydantic import Field

from loop.base.stats import plain_ratio, times
from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.dtypes import Layout
from loop.model.target import Workload
from loop.model.verdict import Against, Interval

BASELINE = "baseline"
"""Name of the side that stands for the target's baseline."""
CheckStatus = Literal["right", "unsupported", "not judged", "wrong", "tampered", "crashed", "hung", "refused"]
STATUSES: tuple[CheckStatus, ...] = get_args(CheckStatus)
"""What may come of a check, in the order in which a line counts them."""


class Fault(Model):
    """What was said of a call that gave no output."""

    text: str
    """One line without the workload: the same failure is known by it on another one."""
    code: str = ""
    """The variant's own error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """Of the emulator's schedule, which gives the fault again."""


class Build(Model):
    """One shared library, and what it was built from; of a Python variant a copy of its files."""

    variant: str
    build_id: str
    """Hash of every file the build read, programs and libraries included, the flags, and the processor."""
    library: str
    seconds: float
    cached: bool
    units: int
    framework_headers: tuple[str, ...] = ()
    """Headers of a deep-learning framework that it includes; empty for a clean C interface."""
    compiler: str
    note: str | None = None
    """What was mended on the way, such as a damaged binary in the cache; or why each command builds it again."""
    compiled: bool = True


class Mismatch(Model):
    """One element that is wrong, and where it is."""

    index: dict[str, int]
    expected: float | None
    got: float | None
    allowed: float
    around: tuple[tuple[float | None, float | None], ...] = ()
    """Expected and got of this element and its neighbours along the last dimension."""

    @property
    def text(self) -> str:
        """`B=0 H=0 Sq=3 D=1: expected 0.12, got nan (allowed error 1e-05)`."""

        def number(value: float | None) -> str:
            if value is None:
                return "nan"
            return f"{value if abs(value) < 1e300 else value * float('inf'):.6g}"

        place = " ".join(f"{name}={index}" for name, index in self.index.items())
        expected, got = number(self.expected), number(self.got)
        return f"{place}: expected {expected}, got {got} (allowed error {self.allowed:.1e})"


class Span(Model):
    """A stretch of one dimension, or the whole of it, in which something is wrong."""

    first: int
    """Its first index; of a whole dimension the first wrong one."""
    last: int
    count: int
    """Wrong elements in it; of a whole dimension indices with one."""
    size: int = 0
    largest: float | None = None
    """Largest absolute error in a stretch; None stands for NaN."""


class Check(Model):
    """A variant's output on one workload, held against the reference."""

    workload: Workload
    inputs: Layout = "contiguous"
    threads: int | None = None
    status: CheckStatus
    """`unsupported`: outside its `takes`, or a layout that it declined; `not judged`: the reference raises or
    overflows; `tampered`: it replaced what judges it; `refused`: it declined a call that it takes."""
    message: str
    cause: Cause = ""
    fault: Fault | None = None
    beyond: str = ""
    """What lies outside the variant's `takes`, as in `D=250`; empty for a call that was made."""
    max_error: float | None = None
    allowed_error: float | None = None
    plain_max_error: float | None = None
    output: str = ""
    checker: str = ""
    wrong: int = 0
    total: int = 0
    worst: Mismatch | None = None
    first: Mismatch | None = None
    map: dict[str, tuple[Span, ...]] = Field(default_factory=dict)
    """Where the wrong elements are: each dimension of the output in at most eight parts."""
    spans: dict[str, Span] = Field(default_factory=dict)
    """The same to the index: each dimension's first and last wrong one."""
    fits: dict[str, bool] | None = None
    """Faults that explain the wrong elements, and whether also the right ones; None: not asked, or too few."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong: it is right, not supported or not judged."""
        return self.status in ("right", "unsupported", "not judged")


Shown = Literal["fixed", "moves", "varies", "negative"]


class Looked(Model):
    """What inputs could not show, whatever a variant does with them."""

    shown: dict[str, tuple[Shown, ...]] = Field(default_factory=dict)
    """Input to what its values showed: `fixed` or `moves` under two seeds, `varies`, `negative`."""
    unread: tuple[str, ...] = ()
    """Inputs that change no output of the reference."""
    ignored: tuple[str, ...] = ()
    """Attributes that change no output."""
    unmoved: tuple[str, ...] = ()
    """Outputs that no input changes."""
    initial: tuple[str, ...] = ()
    """Parameters and buffers of a module that are all 1 or all 0, as constructors leave them."""
    finite: bool = False
    """Whether no input had NaN or an infinity."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """Inputs with the same values under every seed."""
        return tuple(name for name, shown in self.shown.items() if "fixed" in shown and "moves" not in shown)

    @property
    def single(self) -> tuple[str, ...]:
        """Inputs that are one value everywhere."""
        return tuple(
            name for name, shown in self.shown.items() if "varies" not in shown and name not in self.fixed
        )

    @property
    def positive(self) -> tuple[str, ...]:
        """Inputs without a negative value."""
        return tuple(name for name, shown in self.shown.items() if {"varies", "negative"} & {*shown} == {"varies"})

    def beside(self, other: "Looked") -> "Looked":
        """With what the inputs showed that another judge drew."""
        names = dict.fromkeys((*self.shown, *other.shown))
        shown = {name: (*self.shown.get(name, ()), *other.shown.get(name, ())) for name in names}
        return self.model_copy(update={"shown": shown, "finite": self.finite and other.finite})


class VariantChecks(Model):
    """All checks of one variant."""

    emulated: bool = False
    variant: str
    build_id: str | None
    checks: tuple[Check, ...]

    @property
    def right(self) -> bool:
        """Whether every check passed, and at least one gave a right output."""
        return self.count("right") > 0 and all(check.passed for check in self.checks)

    def count(self, status: str) -> int:
        """How many checks ended so."""
        return sum(check.status == status for check in self.checks)

    @property
    def tally(self) -> str:
        """`right on 58, not supported on 4 (strided x2, D=250 x2), crashed on 1`: every check is counted."""
        right = [f"right on {self.count('right')}"] if self.count("right") else []
        return ", ".join(text for text in (*right, self.tally_of_others) if text)

    @property
    def tally_of_others(self) -> str:
        """The same of checks that are not right."""
        # In a word why a call is not supported: what lies outside of `takes`, or the layout.
        declined = [check for check in self.checks if check.status == "unsupported"]
        reasons = Counter(check.beyond or check.inputs for check in declined)
        left = ", ".join(f"{reason} x{count}" for reason, count in reasons.items())
        texts = [f"not supported on {len(declined)} ({left})"] if left else []
        for status in STATUSES:
            if status not in ("right", "unsupported") and self.count(status):
                texts.append(f"{status} on {self.count(status)}")
        return ", ".join(texts)

    @property
    def first_failure(self) -> Check | None:
        """The first check that did not pass."""
        return next((check for check in self.checks if not check.passed), None)

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed, a line a check; one line where all failed alike, as of a library that does not load."""
        failed = [check for check in self.checks if not check.passed]
        texts = {f"{c.status}: {c.fault.text if c.fault else c.message}" for c in failed}
        if len(failed) > 1 and not self.count("right") and len(texts) == 1:
            return (f"{texts.pop()} ({len(failed)} checks)",)
        return tuple(f"{check.status}: {check.message}" for check in failed)


class DeviceReading(Model):
    """What a GPU's sensors said at one moment."""

    sm_clock_mhz: int | None = None
    """Clock of the multiprocessors; None where its driver does not tell."""
    throttle: tuple[str, ...] = ()


class Segment(Model):
    """Consecutive timings of one side; the raw material of a ratio."""

    side: str
    workload: str
    round: Annotated[int, Field(ge=0)]
    """Which round it comes from: fresh processes and values, unless they are kept for several rounds."""
    calls: Annotated[int, Field(ge=1)]
    seconds: tuple[float, ...]
    """Seconds of one call, sample by sample."""
    waited: tuple[float, ...] = ()
    """Seconds of a call in which worker or judge was ready to run and something else ran; empty: not known."""
    left_s: float = 0.0
    """Seconds a call, contained in `seconds`, of work that was left until the result was handed over."""
    processes: Annotated[int, Field(ge=0)] | None = None
    """First round of the processes it comes from, where they are kept for several rounds."""
    sensors: tuple[DeviceReading, DeviceReading] | None = None
    """The GPU before and after; None on a CPU, or where nobody tells."""


class SideSensors(Model):
    """What a GPU's sensors said while one side was timed; None for what its driver does not tell."""

    side: str
    segments: int
    sm_clock_mhz: tuple[int, int, int] | None = None
    """Clock of the multiprocessors in these readings: least, median and most."""
    throttled: dict[str, int] = Field(default_factory=dict)


class Measurement(Model):
    """One variant on one workload against a reference, measured turn about."""

    variant: str
    workload: Workload
    against: Against
    rounds: int
    """Rounds that count: the replicates."""
    outliers: int = 0
    """How many of them lie far from the others, and were pulled in before the mean was taken."""
    ratio: float
    """Reference time / candidate time: exp of the mean log ratio of the rounds, outliers pulled in."""
    interval: Interval
    ranged: bool = False
    """Whether the rounds allow no useful interval: then the ratio is their median, the interval their range."""
    reference_us: float
    candidate_us: float
    reference_peak_bytes: int | None
    candidate_peak_bytes: int | None
    timed_by: Literal["loop", "itself"] = "loop"
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    dropped: int = 0
    """Rounds left out because one side was held back and the other was not: by the GPU, or by other programs."""
    held_back: str | None = None
    """Which side was held back in most rounds, and by what: a result in itself."""

    @property
    def speed(self) -> str:
        """`1.62x [1.55, 1.70]`."""
        low, high = self.interval
        return f"{times(self.ratio)} [{plain_ratio(low)}, {plain_ratio(high)}]"


class PropertyCheck(Model):
    """A relation between a variant's outputs, tried on one workload."""

    variant: str
    property: str
    workload: str
    status: Literal["holds", "failed", "inapplicable"]
    message: str


class NullControl(Model):
    """A variant against itself, in processes of its own: it must never come out faster or slower."""

    variant: str
    comparisons: int
    same: int
    inconclusive: int
    false: tuple[str, ...]
    """Those that came out faster or slower: `slower on ...`."""
    blocks: int
    block_sd: float | None


class PositiveControl(Model):
    """A variant made slower on purpose against itself: the measurement must see it."""

    variant: str
    workload: str
    slowdown: float
    verdict: Literal["faster", "slower", "same", "inconclusive"]
    e_value: float
    blocks: int
    reason: str

    @property
    def seen(self) -> bool:
        """Whether the slowdown was found."""
        return self.verdict == "slower"


class ControlResult(Model):
    """A variant made to err on purpose, or an honest one, at the gate."""

    name: str
    kind: Literal["value", "cheat", "honest"]
    """A wrong result; one that is right only while it is looked at; or an honest candidate, which has to pass."""
    base: str
    workload: str
    stage: Literal["verify", "measure"]
    killed: bool
    reason: str
    cause: Cause = ""
    expected: str
    """Codes that it should be rejected for, `|` between them; empty for honest candidates."""
    right_reason: bool
    """Whether it was rejected for one of them."""
    distinguishable: bool = True
    """False where its outputs stay within what is allowed on the target's inputs: nothing tells it from right."""

    @property
    def survived(self) -> bool:
        """Whether it passed although it should not."""
        return self.kind != "honest" and not self.killed and self.distinguishable

    @property
    def full_name(self) -> str:
        """`cpu: ignores x`."""
        return f"{self.base}: {self.name}"
