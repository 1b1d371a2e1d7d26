"""From what the steps of a session found to what is expected when they are done again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.builds import known_builds
from loop.gate.model import BuildOutput
from loop.model.measurement import Check, VariantChecks
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, Machine
from loop.model.resources import CompiledLibrary, KernelResources
from loop.model.verdict import SpeedVerdict
from loop.profile.model import ResourcesOutput
from loop.replay.model import (
    Expected,
    ExpectedBuild,
    ExpectedCheck,
    ExpectedKernel,
    ExpectedMachine,
    ExpectedSpeed,
)

ERROR = 2.0
"""Largest error of a right output, over the recorded one: threads may add in another order."""
DRIFT = 0.05
"""Share by which the interval of a ratio is made wider: what two sessions of one build differ by."""


@dataclass(frozen=True)
class Compiled:
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


def compiled(finished: Sequence[Finished], cache: Path) -> tuple[Compiled, ...]:
    """Every library that was built, verified or read for its resources, in the order of the steps."""
    made = [one for output in outputs_of(finished, BuildOutput) for one in output.builds]
    copies = {one.build_id for one in made if not one.compiled}
    built = [(one.variant, one.build_id) for one in made]
    built += [(one.variant, one.build_id or "") for one in _verified(finished)]
    built += [(name, one.build_id) for one in _libraries(finished) for name in one.variants[:1]]
    return tuple(_compiled(*one, cache) for one in dict.fromkeys(built) if one[1] and one[1] not in copies)


def _verified(finished: Sequence[Finished]) -> Iterator[VariantChecks]:
    for output in outputs_of(finished, VerifyOutput):
        yield from output.variants


def _libraries(finished: Sequence[Finished]) -> Iterator[CompiledLibrary]:
    for output in outputs_of(finished, ResourcesOutput):
        yield from output.libraries


def _compiled(variant: str, build_id: str, cache: Path) -> Compiled:
    record = known_builds.whole(cache / build_id)
    return (
        Compiled(variant, build_id, record["compiler"], record["command"])
        if record
        else Compiled(variant, build_id)
    )


def expectations(
    finished: Sequence[Finished], machine: Machine, libraries: Sequence[Compiled]
) -> tuple[Expected, ...]:
    """Everything that has to come out again, a line each; the machine first."""
    return (
        place(machine),
        *(one.expected for one in libraries),
        *checks(outputs_of(finished, VerifyOutput)).values(),
        *speeds(outputs_of(finished, MeasureOutput)).values(),
        *kernels(_libraries(finished)).values(),
    )


def place(machine: Machine) -> ExpectedMachine:
    """What of a machine speeds and builds hang on."""
    return ExpectedMachine.model_validate(machine, from_attributes=True)


CheckKey = tuple[str, str, int, str]


def checks(outputs: Sequence[VerifyOutput]) -> dict[CheckKey, ExpectedCheck]:
    """Each check by variant, workload, seed and layout; a later one counts, and before all one that failed."""
    every = [(one.variant, check) for output in outputs for one in output.variants for check in one.checks]
    every.sort(key=lambda one: not one[1].passed)
    return {
        (variant, check.workload.name, check.workload.seed, check.inputs): _check(variant, check)
        for variant, check in every
    }


def _check(variant: str, check: Check) -> ExpectedCheck:
    right = check.status == "right" and check.max_error is not None
    most = max(ERROR * (check.max_error or 0), check.plain_max_error or 0)
    return ExpectedCheck(
        variant=variant,
        workload=check.workload.name,
        seed=check.workload.seed,
        inputs=check.inputs,
        status=check.status,
        error=check.max_error,
        at_most=most if right else None,
    )


def speeds(outputs: Sequence[MeasureOutput]) -> dict[tuple[str, str], ExpectedSpeed]:
    """Each trusted speed against the baseline by variant and workload; a later one counts."""
    verdicts = (one for output in outputs for one in output.verdicts if isinstance(one, SpeedVerdict))
    return {
        (one.variant, one.workload): ExpectedSpeed(
            variant=one.variant,
            workload=one.workload,
            ratio=one.ratio,
            interval=one.interval,
            within=(one.interval[0] * (1 - DRIFT), one.interval[1] * (1 + DRIFT)),
        )
        for one in verdicts
        if one.against == "baseline"
    }


KernelKey = tuple[str, str, str]


def kernels(libraries: Iterator[CompiledLibrary]) -> dict[KernelKey, ExpectedKernel]:
    """Each kernel by variant, architecture and symbol."""
    every = [(one.variants[0], kernel) for one in libraries for kernel in one.kernels if kernel.entry]
    return {(variant, kernel.architecture, kernel.symbol): _kernel(variant, kernel) for variant, kernel in every}


def _kernel(variant: str, kernel: KernelResources) -> ExpectedKernel:
    return ExpectedKernel(
        variant=variant,
        architecture=kernel.architecture,
        symbol=kernel.symbol,
        registers=kernel.registers,
        spill_bytes=kernel.spill_bytes,
        shared_bytes=kernel.shared_bytes,
    )
