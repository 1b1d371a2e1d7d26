"""Results of actions: the common fields, results that several rooms read, and reading stored ones."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from loop.model.base import Model
from loop.model.causes import Cause
from loop.model.jobs import JobRun
from loop.model.measurement import Measurement, SideSensors, VariantChecks
from loop.model.record import Finished, latest_attempts
from loop.model.verdict import Verdict


class Output(Model):
    """The result of an action; each action has a subclass."""

    actions: ClassVar[tuple[str, ...]] = ()
    """Names of the actions that return this class; empty: any action."""

    ok: bool
    message: str
    hint: str | None = None
    identity: str | None = None
    """Key of the step's inputs. A resumed session repeats the step if this has changed."""
    verdicts: tuple[Verdict, ...] = ()
    not_exercised: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    rests_on: str = ""
    """Hash of all inputs, if later sessions may reuse the result; else empty."""
    taken_from: str = ""
    """Id of the earlier session whose result was reused; empty if computed in this session."""


OutputType = TypeVar("OutputType", bound=Output)


def read_output(record: Finished, output_class: type[OutputType]) -> OutputType | None:
    """A step's stored result as `output_class`; None if its action returns another class, or it has no result."""
    if output_class.actions and record.action not in output_class.actions:
        return None
    try:
        return output_class.model_validate(record.output, strict=False, extra="ignore")
    except ValidationError:
        return None


def outputs_of(finished: Iterable[Finished], output_class: type[OutputType]) -> list[OutputType]:
    """Results of `output_class` from the last attempt of each step; steps of other actions are left out."""
    outputs = (read_output(record, output_class) for record in latest_attempts(finished))
    return [output for output in outputs if output is not None]


def outputs_by_run(finished: Iterable[Finished], output_class: type[OutputType]) -> list[tuple[int, OutputType]]:
    """(number of the pattern run, result) of all records whose result is of `output_class`."""
    pairs = ((record.run, read_output(record, output_class)) for record in finished)
    return [(run, output) for run, output in pairs if output is not None]


class GateVerdict(NamedTuple):
    """The verdict of `loop` on one variant."""

    verdict: Literal["right", "wrong", "not judged"]
    why: str = ""
    cause: Cause = ""
    status: str = "wrong"
    """Status of the failed check. `crashed` and `hung` mean that there was no output."""
    timed: bool = False
    """Whether the variant was wrong only in a timed call."""

    @property
    def is_right(self) -> bool:
        return self.verdict == "right"


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

    def verdict_on(self, name: str) -> GateVerdict:
        """The verdict on a variant; `not judged` if the baseline library failed too, or nothing was checked."""
        if name in self.right:
            return GateVerdict("right")
        is_control_wrong = self.control is not None and self.control.first_failure is not None
        if name not in self.wrong or is_control_wrong:
            return GateVerdict("not judged", self.message)
        for checks in self.variants:
            if checks.variant == name and checks.first_failure:
                failure = checks.first_failure
                return GateVerdict("wrong", failure.message, failure.cause, failure.status)
        return GateVerdict("wrong", self.message)


def gate_verdict_on(name: str, finished: Sequence[Finished]) -> GateVerdict:
    """Verdict on a variant by all steps: wrong if any says so, else right if one does; `why` says why a right one
    has no speed. Without a verdict, `why` is the message of the first failed step."""
    verdicts = [output.verdict_on(name) for output in outputs_of(finished, VerifyOutput)]
    why_no_speed = ""
    for output in outputs_of(finished, MeasureOutput):
        for verdict in output.verdicts:
            if verdict.variant == name and verdict.verdict == "incorrect":
                # `timed`: wrong only in a timed call, not in the verification.
                verdicts.append(GateVerdict("wrong", verdict.reason, verdict.cause, timed=True))
            elif verdict.variant == name and verdict.verdict == "invalid":
                why_no_speed = why_no_speed or f"no speed: {verdict.reason}"
    if not verdicts:
        failures = [record.message for record in finished if record.status == "failed"]
        return GateVerdict("not judged", failures[0] if failures else "no step judged it")
    worst_first = ("wrong", "right", "not judged")
    worst = min(verdicts, key=lambda verdict: worst_first.index(verdict.verdict))
    return worst if worst.why else GateVerdict(worst.verdict, why_no_speed)


class MeasureOutput(Output):
    """Speed of the right variants."""

    actions = ("kernel.measure",)

    measurements: tuple[Measurement, ...] = ()
    rounds: int = 0
    called: dict[str, str] = Field(default_factory=dict)
    """Side (variant or baseline) to its calling convention, as in `C, writes into a given output`."""
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
