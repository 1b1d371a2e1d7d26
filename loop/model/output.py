"""Results of actions: common fields, reading stored ones, and results that several rooms read."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, ValidationError

from loop.model.base import Model
from loop.model.measurement import Check, Measurement, SideSensors, VariantChecks, Verdict
from loop.model.record import Finished, JobRun, latest_attempts


class Output(Model):
    """The result of an action; each action has a subclass."""

    actions: ClassVar[tuple[str, ...]] = ()
    """Names of the actions that return this class; empty: any action."""

    ok: bool
    message: str
    hint: str | None = None
    identity: str | None = None
    """Key of the step's inputs. A resume repeats the step, and later ones if this changed."""
    verdicts: tuple[Verdict, ...] = ()
    not_exercised: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    rests_on: str = ""
    """Hash of all inputs, if later sessions may reuse the result; else empty."""
    taken_from: str = ""
    """Id of the earlier session whose result was reused; empty if computed in this session."""


OutputType = TypeVar("OutputType", bound=Output)


def read_output(record: Finished, output_class: type[OutputType]) -> OutputType | None:
    """A step's stored result as `output_class`; None if it is of another class or there is none."""
    if output_class.actions and record.action not in output_class.actions:
        return None
    try:
        return output_class.model_validate(record.output, strict=False, extra="ignore")
    except ValidationError:
        return None


def outputs_of(finished: Iterable[Finished], output_class: type[OutputType]) -> list[OutputType]:
    """Results of `output_class` from the last attempt of each step; other actions are left out."""
    outputs = (read_output(record, output_class) for record in latest_attempts(finished))
    return [output for output in outputs if output is not None]


def outputs_by_run(
    finished: Iterable[Finished], output_class: type[OutputType]
) -> list[tuple[int, OutputType]]:
    """(number of the pattern run, result) of all records whose result is of `output_class`."""
    pairs = ((record.run, read_output(record, output_class)) for record in finished)
    return [(run, output) for run, output in pairs if output is not None]


class ChecksOutput(Output):
    """Result of a step that checked variants."""

    actions: ClassVar[tuple[str, ...]] = ("kernel.verify", "kernel.emulate", "kernel.check")

    variants: tuple[VariantChecks, ...] = ()
    control: VariantChecks | None = None
    """The baseline library under the same checks. If it fails, the checks prove nothing."""


class VerifyOutput(ChecksOutput):
    """Correctness of the selected variants."""

    actions = ("kernel.verify", "kernel.emulate")

    seed: int = 0
    right: tuple[str, ...] = ()
    jobs: tuple[JobRun, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def is_control_wrong(self) -> bool:
        """Whether the baseline library failed the same checks, so that they judge nothing."""
        return self.control is not None and self.control.first_failure is not None


class MeasureOutput(Output):
    """Speed of the right variants."""

    actions = ("kernel.measure",)

    measurements: tuple[Measurement, ...] = ()
    rounds: int = 0
    called: dict[str, str] = Field(default_factory=dict)
    """Side (variant or baseline) to its calling convention: `C, writes into a given output`."""
    empty_us: dict[str, float] = Field(default_factory=dict)
    """Calling convention to the microseconds of an empty call."""
    outputs: int = 0
    warnings: tuple[str, ...] = ()
    sensors: tuple[SideSensors, ...] = ()
    threads: int = 0


class CommandOutput(Output):
    """Result of a user's own command."""

    actions = ("command.run",)

    code: int = 0
    seconds: float = 0.0
    output: str = ""


SanitizerTool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
SanitizerKind = Literal["invalid access", "race", "barrier", "uninitialised read", "heap", "fault"]


class SanitizerReport(Model):
    """One finding of a compute-sanitizer tool."""

    kind: SanitizerKind
    severity: Literal["error", "warning"] = "error"
    """A warning may be intended code, so it does not fail the variant."""
    words: str
    """The first line of the tool's report, without the severity."""
    kernel: str = ""
    """The kernel's name without parameters; or an inlined function, if the tool names only that."""
    places: tuple[str, ...] = ()
    """`file:line`, then its callers, innermost first; empty for code without line information."""
    thread: str = ""
    block: str = ""


class SanitizerRun(Model):
    """The run of one variant under one sanitizer tool."""

    variant: str
    build_id: str
    tool: SanitizerTool
    status: Literal["clean", "found", "unknown"]
    workloads: tuple[str, ...]
    seconds: Annotated[float, Field(ge=0)]
    reports: tuple[SanitizerReport, ...] = ()
    total: int = 0
    workload: str = ""
    why: str = ""

    @property
    def first_error(self) -> SanitizerReport | None:
        """The first finding with severity `error`; None if there is none."""
        return next((report for report in self.reports if report.severity == "error"), None)

    @property
    def summary_text(self) -> str:
        """`small has a race in k at k.cuh:99, on B1 S64 float16: words (91 more)`; `x is clean`."""
        error = self.first_error
        if error is None:
            return f"{self.variant} is {self.status}"
        workload = self.workload or f"one of {len(self.workloads)} workloads"
        count = f" ({self.total - 1} more)" if self.total > 1 else ""
        article = "an" if error.kind[0] in "aeiou" else "a"
        finding = f"{article} {error.kind}{f' in {error.kernel}' if error.kernel else ''}"
        finding += f" at {', called at '.join(error.places)}" if error.places else ""
        finding += f", thread {error.thread} of block {error.block}" if error.thread else ""
        return f"{self.variant} has {finding}, on {workload}: {error.words}{count}"


class SanitizeOutput(Output):
    """Result of `kernel.sanitize`: compiled CUDA variants under the tools of compute-sanitizer."""

    actions = ("kernel.sanitize",)

    runs: tuple[SanitizerRun, ...] = ()
    clean: tuple[str, ...] = ()
    """Variants that all tools checked without an error."""
    found: tuple[str, ...] = ()
    version: str = ""


ProbeOutcome = Literal["fails", "passes", "other"]
"""Result of a probe: `fails` as under study, `passes`, or `other` (a different failure)."""


class ComponentChecks(Model):
    """Checks of one component of a variant, run alone."""

    component: str
    variant: str
    title: str
    checks: VariantChecks

    @property
    def outcome(self) -> str:
        """`is right by itself`, or status and message of its first failure."""
        first = self.checks.first_failure
        return f"is {first.status}: {first.message}" if first else "is right by itself"


class Smallest(Model):
    """The smallest workload found on which a variant fails."""

    variant: str
    check: Check
    words: str
    """The workload for a command line: `B=1 S=65 D=64`; empty if it alone does not always fail."""
    seed: int
    probes: int
    minimal: bool
    """True if no dimension can be reduced by one; False if the time budget ended the search."""
    note: str = ""
    """A special finding, such as a failure that does not occur every time."""


class EarlierTry(Model):
    """A build of a variant that an earlier session verified."""

    session: str
    variant: str
    build_id: str | None
    ground: str
    hypothesis: str
    right: bool
    message: str


class Explanation(Model):
    """Why and where one variant is wrong, as far as debugging found out."""

    variant: str
    cause: str
    """The defect: a data race, state kept between calls, a known fault; empty if unknown."""
    as_if: tuple[str, ...]
    """Known faults that each explain the wrong outputs."""
    rule: str
    """Condition for wrong workloads; empty if no rule predicted new workloads correctly."""
    held: int
    """Number of new workloads in a row that the rule predicted correctly."""
    where: str
    """Which elements are wrong, in words; empty if there is no output."""
    workload: str

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """(label, text) pairs: cause, rule, where. Pairs without a text are left out."""
        rule, cause = "", self.cause
        if self.rule:
            rule = f"{self.rule} ({self.held} of {self.held} fresh workloads as foreseen)"
        elif self.where and not cause:
            cause = "not identified: no known fault and no rule fits"
        pairs = ("Cause", cause), ("Rule", rule), ("Where", self.where)
        return tuple((label, text) for label, text in pairs if text)


class Diagnosis(Model):
    """The diagnosis of one wrong variant."""

    variant: str
    lines: tuple[tuple[str, str], ...]
    command: str
    """Command that reproduces the smallest failure; empty if none was searched for."""
    cause: str = ""
    rule: str = ""


class DebugOutput(Output):
    """Result of a debugging step on wrong variants."""

    actions = ("debug.components", "debug.smallest", "debug.explain")

    components: tuple[ComponentChecks, ...] = ()
    wrong: tuple[str, ...] = ()
    smallest: tuple[Smallest, ...] = ()
    explanations: tuple[Explanation, ...] = ()


class TurnOutput(Output):
    """Earlier tries, and the variants that the current edit changes."""

    actions = ("debug.hypotheses", "debug.scope")

    hypothesis: str = ""
    tries: tuple[EarlierTry, ...] = ()
    repeated: tuple[str, ...] = ()
    """Variants whose current build was already found wrong."""
    changed: tuple[str, ...] = ()
    """Compiled variants whose build differs from the known-good build."""
    count: int = 0
    simple: str = ""
    """The first changed variant in the manifest, taken as the simplest; empty for less than two."""
    simple_right: bool = True
