"""`loop kernels check`: in seconds, does an edit compile, is it right, and about how fast is it?

It decides nothing. Only the gate keeps a change, with more workloads and more evidence.
"""

from collections.abc import Generator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.base.stats import ratio_interval, times
from loop.builds import build
from loop.gate import kernel
from loop.gate.verify import Job, TimeAllowance, verify
from loop.model.base import Model
from loop.model.measurement import BASELINE, Build, VariantChecks
from loop.model.output import Output
from loop.model.target import Workload
from loop.model.workloads import count_operations, is_supported
from loop.report import format as say
from loop.steps.context import Context, Result, RunningAction
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.timing.samples import MIN_ROUNDS, Terms
from loop.timing.schedule import Untimed

NOTE = "loop-check.json"
"""In `.git` of a candidate's worktree: what a check compares with."""
LEAST_WORKLOADS = 6
"""Workloads that are verified regardless of time."""


class CheckNote(Model):
    """Data from the campaign for the checks of its candidates."""

    format: int = 1
    incumbents: dict[str, str]
    """Variant to the build id that it has to beat."""
    builds: str
    """The build cache with those builds."""
    workload: str
    """The workload that the check times: the variant's worst."""
    sets: tuple[str, ...]
    """The workload sets that a proposer may see."""


class CheckTerms(Model):
    """Time limits of a check."""

    seconds: Annotated[float, Field(gt=0, le=60)] = 1.5
    """Seconds of timing."""
    verify_s: Annotated[float, Field(ge=0, le=600)] = 3.0
    """Seconds for workloads beyond the first six; the output lists those that did not fit."""
    rounds: Annotated[int, Field(ge=MIN_ROUNDS, le=20)] = 5
    """Rounds, each in new processes, if time allows."""


class QuickSpeed(Model):
    """An estimate of a variant's speed; not a verdict."""

    variant: str
    against: str
    """The other side: `the incumbent`, or `baseline`."""
    workload: str
    ratio: float
    """Time of the other side / time of the variant: above 1 the variant is faster."""
    interval: tuple[float, float]
    """99 % interval of the ratio; wide, because rounds are few."""

    @property
    def sentence_part(self) -> str:
        """`ours 1.12x the incumbent on N64 float32`."""
        return f"{self.variant} {times(self.ratio)} {self.against} on {self.workload}"


class CheckOutput(Output):
    """The result of a check."""

    actions: ClassVar[tuple[str, ...]] = ("kernel.check",)

    built: tuple[str, ...] = ()
    """Variants that compile."""
    verified: tuple[str, ...] = ()
    """Workloads that were verified."""
    wrong: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Variant to its failures, one line each."""
    variants: tuple[VariantChecks, ...] = ()
    """The checks of each variant."""
    speeds: tuple[QuickSpeed, ...] = ()
    """One for each variant that is right."""


def read_check_note(folder: Path) -> CheckNote | None:
    """The campaign's data for the checks of this candidate; None outside a campaign, or if unreadable."""
    repository = next((place for place in (folder, *folder.parents) if (place / ".git").is_dir()), None)
    try:
        return sums.read_sealed(CheckNote, repository / ".git" / NOTE) if repository else None
    except (OSError, LoopError):
        return None


def check(context: Context, arguments: CheckTerms) -> RunningAction[CheckOutput]:
    """Compile, verify on a few workloads, and time once against the incumbent or the baseline."""
    bench, note = context.bench, read_check_note(context.task.folder)
    buildable = build.buildable_variants(bench, context.task.variants)
    builds, failures = yield from kernel.compile_all(context, buildable)
    fields: dict[str, Any] = {"built": tuple(build.variant for build in builds)}
    if failures:
        return Result(CheckOutput(ok=False, message=failures[0].message, hint=failures[0].hint, **fields))
    if not builds:
        return Result(CheckOutput(ok=False, message="nothing to compile"))
    workloads_to_check = order_workloads(context, note)
    allowance = TimeAllowance(arguments.verify_s, workloads_to_check[LEAST_WORKLOADS:])
    jobs = [Job(bench.make_side(build.variant, build), workloads_to_check) for build in builds]
    checks = yield from verify(bench, jobs, allowance)
    verified = tuple(workload.name for workload in workloads_to_check if workload not in allowance.left_out)
    missing = kernel.describe_unverified_sets(context, fields["built"], allowance.left_out)
    failures_by_variant = {variant.variant: variant.failure_lines for variant in checks if variant.failure_lines}
    fields |= {"verified": verified, "wrong": failures_by_variant, "variants": checks}
    for name, failed in failures_by_variant.items():
        message = f"{name}: {failed[0]}"
        return Result(CheckOutput(ok=False, message=message, not_exercised=tuple(missing), **fields))
    speeds: list[QuickSpeed] = []
    with ExitStack() as stack:
        yield from hold_device(bench, stack)
        for correct_build in builds:
            try:
                speeds += yield from _estimate_speed(context, correct_build, note, arguments)
            except (Untimed, LoopError) as error:
                missing.append(f"speed of {correct_build.variant}: {error}")
    texts = ", ".join(speed.sentence_part for speed in speeds)
    about = f" on {say.count(len(verified), 'workload')}; about {texts}" if texts else "; no speed"
    fields |= {"speeds": tuple(speeds), "not_exercised": tuple(missing)}
    return Result(CheckOutput(ok=True, message=f"right{about}", **fields))


def order_workloads(context: Context, note: CheckNote | None) -> tuple[Workload, ...]:
    """Workloads, alternating between sets; those larger than any timed workload come last.

    In a campaign (`note`), only the sets that a proposer may see.
    """
    target = context.bench.target
    names = note.sets if note else tuple(target.workloads)
    sets = [kernel.workloads(context, [name]) for name in names if name in target.workloads]
    alternating: list[Workload] = []
    for position in zip_longest(*sets):  # The first workload of each set, then the second, ...
        alternating += [workload for workload in position if workload is not None]
    timed = kernel.workloads(context, note.sets[:1] if note else context.task.plan.workloads)
    largest_timed = max((count_operations(target, workload) for workload in timed), default=0)
    distinct = kernel.distinct_workloads(alternating)
    # All up to the largest timed one have the same key, so they keep their alternating order.
    return tuple(sorted(distinct, key=lambda workload: max(count_operations(target, workload), largest_timed)))


def _estimate_speed(
    context: Context, timed_build: Build, note: CheckNote | None, arguments: CheckTerms
) -> Generator[Tick, None, list[QuickSpeed]]:
    """Estimate the speed against the incumbent; against the baseline outside a campaign.

    On the workload that the campaign's `note` names (the one to improve), else on the plan's last.
    Empty without enough rounds, or if the variant supports no workload.
    """
    bench, name = context.bench, timed_build.variant
    side = bench.make_side(name, timed_build)
    incumbent_id = note.incumbents.get(name) if note else None
    incumbent = build.find_build_by_id(name, incumbent_id, Path(note.builds)) if note and incumbent_id else None
    rival, against = bench.make_side(BASELINE), BASELINE
    if incumbent is not None:
        rival, against = bench.make_side(name, incumbent).copy_as("incumbent"), "the incumbent"
    workloads = kernel.workloads(context, note.sets if note else context.task.plan.workloads)
    supported = [workload for workload in workloads if is_supported(side, workload)]
    if not supported:
        return []
    named_workloads = [workload for workload in supported if note and workload.name == note.workload]
    workload = named_workloads[0] if named_workloads else supported[-1]
    terms = Terms(arguments.rounds, arguments.seconds, context.task.seed)
    timings = yield from schedule.measure(bench, [rival, side], [workload], terms)
    log_ratios = samples.log_ratios(timings.segments_of(workload.name), rival.name, side.name)
    if len(log_ratios) < MIN_ROUNDS:
        return []
    ratio, low, high = ratio_interval(log_ratios)
    fields = {"ratio": ratio, "interval": (low, high)}
    return [QuickSpeed(variant=name, against=against, workload=workload.name, **fields)]
