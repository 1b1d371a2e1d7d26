"""What a session found, as a recipe expects it again: each with what it may differ by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from loop.builds import known_builds
from loop.gate.model import BuildOutput
from loop.model.base import Model
from loop.model.dtypes import Layout
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, Machine
from loop.model.resources import CompiledLibrary
from loop.model.verdict import Interval, SpeedVerdict
from loop.profile.model import ResourcesOutput

ERROR = 2.0
"""Largest error of a right output, over the recorded one: threads may add in another order."""
DRIFT = 0.05
"""Share by which the interval of a ratio is made wider: what two sessions of one build differ by."""


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

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Which check it is."""
        return self.variant, self.workload, self.seed, self.inputs


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
CheckKey = tuple[str, str, int, str]
KernelKey = tuple[str, str, str]


@dataclass(frozen=True)
class JudgedLibrary:
    """A library that was judged, and the line that made it."""

    variant: str
    build_id: str
    compiler: str = ""
    command: Sequence[str] = ()
    """Empty where the cache has it no more."""

    @property
    def expected(self) -> ExpectedBuild:
        """What is expected of it."""
        return ExpectedBuild(
            variant=self.variant, build_id=self.build_id, compiler=self.compiler, compiled=bool(self.command)
        )


def compiled(finished: Sequence[Finished], cache: Path) -> tuple[JudgedLibrary, ...]:
    """Every library that was built, verified or read for its resources, in the order of the steps."""
    built = [library for output in outputs_of(finished, BuildOutput) for library in output.builds]
    copies = {library.build_id for library in built if not library.compiled}
    ids = [(library.variant, library.build_id) for library in built]
    outputs = outputs_of(finished, VerifyOutput)
    ids += [(checks.variant, checks.build_id or "") for output in outputs for checks in output.variants]
    ids += [(name, library.build_id) for library in _libraries(finished) for name in library.variants[:1]]
    known = []
    for variant, build_id in dict.fromkeys(ids):
        if build_id and build_id not in copies:
            record = known_builds.whole(cache / build_id)
            how = (record["compiler"], record["command"]) if record else ("", ())
            known.append(JudgedLibrary(variant, build_id, *how))
    return tuple(known)


def _libraries(finished: Sequence[Finished]) -> list[CompiledLibrary]:
    return [library for output in outputs_of(finished, ResourcesOutput) for library in output.libraries]


def expectations(
    finished: Sequence[Finished], machine: Machine, libraries: Sequence[JudgedLibrary]
) -> tuple[Expected, ...]:
    """Everything that has to come out again, a line each; the machine first."""
    return (
        place(machine),
        *(library.expected for library in libraries),
        *checks(outputs_of(finished, VerifyOutput)).values(),
        *speeds(outputs_of(finished, MeasureOutput)).values(),
        *kernels(_libraries(finished)).values(),
    )


def place(machine: Machine) -> ExpectedMachine:
    """What of a machine speeds and builds hang on."""
    return ExpectedMachine.model_validate(machine, from_attributes=True)


def checks(outputs: Sequence[VerifyOutput]) -> dict[CheckKey, ExpectedCheck]:
    """Each check by variant, workload, seed and layout; a later one counts, and before all one that failed."""
    every = [(entry.variant, check) for output in outputs for entry in output.variants for check in entry.checks]
    expected = []
    for variant, check in sorted(every, key=lambda pair: not pair[1].passed):
        right = check.status == "right" and check.max_error is not None
        most = max(ERROR * (check.max_error or 0), check.plain_max_error or 0)
        expected.append(
            ExpectedCheck(
                variant=variant,
                workload=check.workload.name,
                seed=check.workload.seed,
                inputs=check.inputs,
                status=check.status,
                error=check.max_error,
                at_most=most if right else None,
            )
        )
    return {check.key: check for check in expected}


def speeds(outputs: Sequence[MeasureOutput]) -> dict[tuple[str, str], ExpectedSpeed]:
    """Each trusted speed against the baseline by variant and workload; a later one counts."""
    verdicts = (verdict for output in outputs for verdict in output.verdicts if isinstance(verdict, SpeedVerdict))
    return {
        (verdict.variant, verdict.workload): ExpectedSpeed(
            variant=verdict.variant,
            workload=verdict.workload,
            ratio=verdict.ratio,
            interval=verdict.interval,
            within=(verdict.interval[0] * (1 - DRIFT), verdict.interval[1] * (1 + DRIFT)),
        )
        for verdict in verdicts
        if verdict.against == "baseline"
    }


def kernels(libraries: Iterable[CompiledLibrary]) -> dict[KernelKey, ExpectedKernel]:
    """Each kernel by variant, architecture and symbol."""
    fields = [name for name in ExpectedKernel.model_fields if name not in ("expect", "variant")]
    every = [(library.variants[0], kernel) for library in libraries for kernel in library.kernels if kernel.entry]
    return {
        (variant, kernel.architecture, kernel.symbol): ExpectedKernel(
            variant=variant, **{name: getattr(kernel, name) for name in fields}
        )
        for variant, kernel in every
    }
