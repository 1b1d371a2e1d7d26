"""What an action finds: the fields of every one, those that several rooms read, and stored ones read back."""

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
    """What every action gives back."""

    actions: ClassVar[tuple[str, ...]] = ()
    """Actions that find it; empty for what any of them finds."""

    ok: bool
    message: str
    hint: str | None = None
    identity: str | None = None
    """What the result stands on; a resumed session repeats the step when this has changed."""
    verdicts: tuple[Verdict, ...] = ()
    not_exercised: tuple[str, ...] = ()
    learned: tuple[str, ...] = ()
    rests_on: str = ""
    """Hash of all that it rests on, where a later session may take it over; empty elsewhere."""
    taken_from: str = ""
    """The earlier session that found it; empty where it was found in this one."""


Found = TypeVar("Found", bound=Output)


def read_output(record: Finished, kind: type[Found]) -> Found | None:
    """What a step found, as this kind; None where it is of another, or broke off before it found anything."""
    if kind.actions and record.action not in kind.actions:
        return None
    try:
        return kind.model_validate(record.output, strict=False, extra="ignore")
    except ValidationError:
        return None


def outputs_of(finished: Iterable[Finished], kind: type[Found]) -> list[Found]:
    """What all steps of one kind found, each in its last attempt."""
    read = (read_output(record, kind) for record in latest_attempts(finished))
    return [output for output in read if output is not None]


def by_run(finished: Iterable[Finished], kind: type[Found]) -> list[tuple[int, Found]]:
    """What each step of one kind found, with its run."""
    read = ((record.run, read_output(record, kind)) for record in finished)
    return [(run, output) for run, output in read if output is not None]


class Ours(NamedTuple):
    """Our verdict on one variant."""

    verdict: Literal["right", "wrong", "not judged"]
    why: str = ""
    cause: Cause = ""
    status: str = "wrong"
    """That of the check: `crashed` and `hung` gave no output."""
    timed: bool = False
    """Whether it is wrong only in a timed call."""

    @property
    def passes(self) -> bool:
        """Whether nothing is found against it."""
        return self.verdict == "right"


class Checked(Output):
    """Any step that checked variants."""

    actions: ClassVar[tuple[str, ...]] = ("kernel.verify", "kernel.emulate", "kernel.check")

    variants: tuple[VariantChecks, ...] = ()
    control: VariantChecks | None = None
    """The baseline library through the same checks: it has to pass."""


class VerifyOutput(Checked):
    """Correctness of the selected variants."""

    actions = ("kernel.verify", "kernel.emulate")

    seed: int = 0
    right: tuple[str, ...] = ()
    jobs: tuple[JobRun, ...] = ()
    wrong: tuple[str, ...] = ()

    def of(self, name: str) -> Ours:
        """The verdict on a variant: none where the control failed as well, or nothing was checked."""
        if name in self.right:
            return Ours("right")
        if name not in self.wrong or (self.control is not None and self.control.first_failure):
            return Ours("not judged", self.message)
        failed = next((checks.first_failure for checks in self.variants if checks.variant == name), None)
        if failed is None:
            return Ours("wrong", self.message)
        return Ours("wrong", failed.message, failed.cause, failed.status)


def ours_on(name: str, finished: Sequence[Finished]) -> Ours:
    """Our verdict on a variant from all steps so far: wrong by any of them, else right by one."""
    verdicts, no_speed = [output.of(name) for output in outputs_of(finished, VerifyOutput)], ""
    for verdict in (v for output in outputs_of(finished, MeasureOutput) for v in output.verdicts):
        if verdict.variant == name and verdict.verdict == "incorrect":
            verdicts.append(Ours("wrong", verdict.reason, verdict.cause, timed=True))
        elif verdict.variant == name and verdict.verdict == "invalid":
            no_speed = no_speed or f"no speed: {verdict.reason}"
    if not verdicts:
        failed = next((record.message for record in finished if record.status == "failed"), "no step judged it")
        return Ours("not judged", failed)
    order = ("wrong", "right", "not judged")
    worst = min(verdicts, key=lambda verdict: order.index(verdict.verdict))
    return worst if worst.why else Ours(worst.verdict, no_speed)


class MeasureOutput(Output):
    """Speed of the variants that are right."""

    actions = ("kernel.measure",)

    measurements: tuple[Measurement, ...] = ()
    rounds: int = 0
    called: dict[str, str] = Field(default_factory=dict)
    """Side to how its calls are made, as in `C, writes into a given output`."""
    empty_us: dict[str, float] = Field(default_factory=dict)
    """Microseconds of a call that does nothing, by the way it is made."""
    outputs: int = 0
    warnings: tuple[str, ...] = ()
    sensors: tuple[SideSensors, ...] = ()
    threads: int = 0
    block_sd: float | None = None
    """Median over workloads of the standard deviation of a round's log ratio: the noise of this machine."""


class CommandOutput(Output):
    """A command of the user's own."""

    actions = ("command.run",)

    code: int = 0
    seconds: float = 0.0
    output: str = ""
