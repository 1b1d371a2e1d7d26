"""Results of the bench: verdicts, builds, correctness checks, timings, and controls of timing."""

from collections import Counter
from typing import Annotated, Literal, get_args

from pydantic import Field

from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.dtypes import Layout
from loop.model.target import Workload

Against = Literal["baseline", "known_good", "self"]
Interval = tuple[float, float]
TOO_WIDE = 10.0  # An interval with a larger high/low factor is noise, unless it lies far from 1.


def is_vague(interval: Interval) -> bool:
    """Whether an interval of a ratio is too wide to use: high / low exceeds `TOO_WIDE`, and it does
    not show that the candidate is at least twice as slow, or faster by more than this factor."""
    low, high = interval
    return high / low > TOO_WIDE and high >= 0.5 and low <= high / low


class SpeedVerdict(Model):
    """A verdict on the speed of a variant with right outputs."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["faster", "slower", "same", "inconclusive"]
    ratio: Annotated[float, Field(gt=0)]
    """Reference time / candidate time; above 1 the candidate is faster."""
    interval: Interval
    e_value: float | None = None
    """Evidence of the sequential test. None against the baseline: too few processes for a test."""


class NoSpeedVerdict(Model):
    """A verdict on a variant that is wrong or could not be timed. It has no ratio."""

    variant: str
    workload: str
    against: Against
    reason: str
    verdict: Literal["incorrect", "invalid"]
    cause: Cause = ""
    ratio: None = None
    interval: None = None


Verdict = Annotated[SpeedVerdict | NoSpeedVerdict, Field(discriminator="verdict")]


BASELINE = "baseline"  # Name of the target's baseline as a side of a comparison.
CheckStatus = Literal[
    "right", "unsupported", "not judged", "wrong", "tampered", "crashed", "hung", "refused"
]
STATUSES: tuple[CheckStatus, ...] = get_args(CheckStatus)
"""All statuses of a check, in the order in which texts count them."""


class Fault(Model):
    """The error of a call without an output."""

    text: str
    """One line without the workload, so that the same failure on another workload is recognised."""
    code: str = ""
    """The variant's error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """Seed of the emulator's thread schedule that reproduces the fault."""


class Build(Model):
    """The build of a variant: a shared library, or for a Python variant a copy of its files."""

    variant: str
    build_id: str
    """Hash of all files that the build read (also tools and libraries), of flags and processor."""
    library: str
    seconds: float
    cached: bool
    compiler: str
    note: str | None = None
    """A repair, such as of a damaged binary in the cache; or why every command builds it again."""
    compiled: bool = True


class Mismatch(Model):
    """One wrong element with its index, expected and actual value."""

    index: dict[str, int]
    expected: float | None
    got: float | None
    allowed: float

    @property
    def text(self) -> str:
        """As text: `B=0 H=0 Sq=3 D=1: expected 0.12, got nan (allowed error 1e-05)`."""

        def number_text(value: float | None, digits: int = 6) -> str:
            if value is None:
                return "nan"
            # JSON has no infinity: the judge sends a number of 1e300 or more instead.
            return f"{value if abs(value) < 1e300 else value * float('inf'):.{digits}g}"

        place = " ".join(f"{name}={index}" for name, index in self.index.items())
        expected, got = number_text(self.expected), number_text(self.got)
        if expected == got:  # In double, six digits may not tell them apart.
            expected, got = number_text(self.expected, 17), number_text(self.got, 17)
        return f"{place}: expected {expected}, got {got} (allowed error {self.allowed:.1e})"


class Span(Model):
    """A range of indices of one dimension with wrong elements (`map`), or a dimension (`spans`)."""

    first: int
    """First index of the range; for a whole dimension the first wrong index."""
    last: int
    count: int
    """Number of wrong elements in the range; for a whole dimension number of wrong indices."""
    size: int = 0
    largest: float | None = None
    """Largest absolute error in the range; None: NaN."""


class Comparison(Model):
    """Comparison of an output with the right answer."""

    max_error: float | None = None
    allowed_error: float | None = None
    """Allowed error at the element with the largest error."""
    plain_max_error: float | None = None
    """Largest error of the plain implementation; None if there is none."""
    output: str = ""
    """Name of the output; empty if the call has only one."""
    checker: str = ""
    """Complaint of the task's own checker; empty if it accepts."""
    wrong: int = 0
    total: int = 0
    worst: Mismatch | None = None
    """The wrong element with the largest error for its limit."""
    first: Mismatch | None = None
    map: dict[str, tuple[Span, ...]] = Field(default_factory=dict)
    """Dimension to its ranges (at most eight) with wrong elements."""
    spans: dict[str, Span] = Field(default_factory=dict)
    """Dimension to its first and last wrong index."""
    fits: dict[str, bool] | None = None
    """Faults that explain all wrong elements; True if right ones too. None: too few, or untried."""


class Check(Comparison):
    """Comparison of a variant's output with the reference on one workload."""

    workload: Workload
    inputs: Layout = "contiguous"
    threads: int | None = None
    status: CheckStatus
    """`unsupported`: excluded by `takes`, or a declined layout; `not judged`: the reference raised
    or overflowed; `tampered`: it changed the judge's code; `refused`: it declined a good call."""
    message: str
    cause: Cause = ""
    fault: Fault | None = None
    beyond: str = ""
    """Why `takes` excludes the call, as in `D=250`; empty if the call was made."""

    @property
    def passed(self) -> bool:
        """Whether the status is `right`, `unsupported` or `not judged`."""
        return self.status in ("right", "unsupported", "not judged")

    def make_verdict(self, variant: str, against: Against, reason: str) -> NoSpeedVerdict:
        """The verdict on a variant that fails this check: `incorrect`, `invalid` for tampering."""
        return NoSpeedVerdict(
            variant=variant,
            workload=self.workload.name,
            against=against,
            verdict="invalid" if self.status == "tampered" else "incorrect",
            cause=self.cause,
            reason=reason,
        )


Weaknesses = dict[str, tuple[str, ...]]
"""Weakness of the test inputs to the inputs (outputs, attributes, weights) that have it. Each hides
an error of variants. A missing one was not looked for.

- `fixed`, `single_valued`: the same values for every two seeds compared; one value in all elements
- `nonnegative`: the values differ and are never negative
- `narrow`, `from_zero`: wider integers that all fit 16 bits; integers in order from 0, as offsets
- `untied`, `finite`: no row of floats has its greatest or least value twice; no NaN or infinity
- `unread`, `unread_halves`: affects no output; nor does its second half along an axis (`x along W`)
- `ignored`, `unmoved`: attributes that do not affect any output; outputs that no input affects
- `initial`: weights of the reference module that are all 1 or all 0, as constructors leave them
- `whole_outputs`: outputs that are integers or truth values, such as indices
"""


class VariantChecks(Model):
    """All checks of one variant."""

    emulated: bool = False
    variant: str
    build_id: str | None
    checks: tuple[Check, ...]

    @property
    def is_right(self) -> bool:
        """Whether every check passed, and at least one gave a right output."""
        return self.count("right") > 0 and all(check.passed for check in self.checks)

    def count(self, status: str) -> int:
        """Number of checks with this status."""
        return sum(check.status == status for check in self.checks)

    @property
    def tally(self) -> str:
        """Counts of all checks: `right on 58, not supported on 4 (strided x2, D=250 x2)`."""
        right = f"right on {self.count('right')}" if self.count("right") else ""
        return ", ".join(filter(None, [right, self.tally_of_others]))

    @property
    def tally_of_others(self) -> str:
        """Counts of the checks that are not right: `not supported on 4 (strided x4), hung on 1`."""
        # Reason for an unsupported call: the part excluded by `takes`, or the layout.
        unsupported_checks = [check for check in self.checks if check.status == "unsupported"]
        reasons = Counter(check.beyond or check.inputs for check in unsupported_checks)
        reasons_text = ", ".join(f"{reason} x{count}" for reason, count in reasons.items())
        texts = list[str]()
        if unsupported_checks:
            texts.append(f"not supported on {len(unsupported_checks)} ({reasons_text})")
        for status in STATUSES:
            if status not in ("right", "unsupported") and self.count(status):
                texts.append(f"{status} on {self.count(status)}")
        return ", ".join(texts)

    @property
    def first_failure(self) -> Check | None:
        """The first check that did not pass; None if all passed."""
        return next((check for check in self.checks if not check.passed), None)

    @property
    def failure_lines(self) -> tuple[str, ...]:
        """One line per failed check; one if none is right and all failed alike: nothing loads."""
        failed = [check for check in self.checks if not check.passed]
        # A fault's text does not name the workload, so that equal failures have equal texts.
        reasons = [(c.status, c.fault.text if c.fault else c.message) for c in failed]
        texts = {f"{status}: {text}" for status, text in reasons}
        if len(failed) > 1 and not self.count("right") and len(texts) == 1:
            return (f"{texts.pop()} ({len(failed)} checks)",)
        return tuple(f"{check.status}: {check.message}" for check in failed)


class DeviceReading(Model):
    """Sensor values of a GPU at one moment."""

    sm_clock_mhz: int | None = None
    """Clock of the multiprocessors in MHz; None if the driver does not report it."""
    throttle: tuple[str, ...] = ()


class Segment(Model):
    """Consecutive timings of one side on one workload: the raw data of a ratio."""

    side: str
    workload: str
    round: Annotated[int, Field(ge=0)]
    """Number of the round. Each has new processes and input values, unless several share them."""
    calls: Annotated[int, Field(ge=1)]
    seconds: tuple[float, ...]
    """Seconds per call, one value per sample."""
    waited: tuple[float, ...] = ()
    """Seconds per call in which worker or judge waited for a core, per sample; empty: unknown."""
    left_s: float = 0.0
    """Seconds per call, included in `seconds`, of work still running when the function returned."""
    processes: Annotated[int, Field(ge=0)] | None = None
    """First round of the same processes, if several rounds share them."""
    sensors: tuple[DeviceReading, DeviceReading] | None = None
    """GPU sensors before and after; None on a CPU, or if unknown."""


class SideSensors(Model):
    """GPU sensors during the timing of one side. None: the driver does not report it."""

    side: str
    segments: int
    sm_clock_mhz: tuple[int, int, int] | None = None
    """Clock of the multiprocessors in MHz: minimum, median and maximum."""
    throttled: dict[str, int] = Field(default_factory=dict)


class Measurement(Model):
    """Timing comparison of a variant with a reference on one workload, in alternating order."""

    variant: str
    workload: Workload
    against: Against
    rounds: int
    ratio: float
    """Reference time / candidate time: exp of the rounds' mean log ratio, outliers clipped."""
    interval: Interval
    ranged: bool = False
    """True if no useful interval exists: `ratio` is the median, `interval` the range of rounds."""
    reference_us: float
    candidate_us: float
    timed_by: Literal["loop", "itself"] = "loop"
    """`itself`: the variant is a program that reports its own time."""
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    held_back: str | None = None
    """Which side was slowed down in most rounds, and by what. None: neither."""


class PropertyCheck(Model):
    """Test of a relation between a variant's outputs on one workload, without a reference."""

    variant: str
    property: str
    workload: str
    status: Literal["holds", "failed", "inapplicable"]
    message: str


class NullControl(Model):
    """Null control: a variant timed against itself. No verdict may be `faster` or `slower`."""

    variant: str
    comparisons: int
    same: int
    inconclusive: int
    false: tuple[str, ...]
    """Comparisons with a wrong verdict of `faster` or `slower`, as text: `slower on ...`."""
    blocks: int
    block_sd: float | None


class PositiveControl(Model):
    """Positive control: a variant slowed on purpose against itself. It must come out `slower`."""

    variant: str
    workload: str
    slowdown: float
    verdict: Literal["faster", "slower", "same", "inconclusive"]
    e_value: float
    blocks: int
    reason: str
