"""As if what had been done wrong? Wrong outputs are held against known faults, on several workloads."""

from collections.abc import Sequence

from loop.debug.probing import HANG_S, failing_sides, failing_variants
from loop.debug.shrinking import Failing
from loop.debug.whereabouts import whereabouts
from loop.gate.verify import Job, verify
from loop.model.debugging import CausesOutput, Explanation
from loop.model.measurement import Check
from loop.model.output import VerifyOutput, outputs_of
from loop.model.target import Workload
from loop.steps.context import Context, NoArguments, Result, Working

MOST = 3
"""Workloads that a variant is looked at on: what explains one alone may be chance."""
LARGEST = 1 << 20
"""Elements of an output that is looked at; each fault costs a reference in float64."""
NOTHING = "no wrong output to explain"


def causes(context: Context, arguments: NoArguments) -> Working[CausesOutput]:
    """Which known fault explains the outputs of each wrong variant: of its target, or of any kernel."""
    found = [one for one in failing_variants(context) if one.kind == "wrong"]
    made = []
    for one, side in (yield from failing_sides(context, found)):
        chosen = _chosen(context, one)
        job = Job(side, chosen, layouts=False, call_limit_s=HANG_S, suspected=True)
        (checks,) = yield from verify(context.bench, [job])
        wrong = [check for check in checks.checks if check.wrong]
        if wrong:
            made.append(_cause(context, one.variant, wrong))
    texts = [f"{one.variant}: {one.text}" for one in made]
    return Result(CausesOutput(ok=True, message="; ".join(texts) or NOTHING, causes=tuple(made)))


def _cause(context: Context, variant: str, wrong: Sequence[Check]) -> Explanation:
    """The faults that explain every check that is telling; those that explain whole outputs before others."""
    telling, place = [check for check in wrong if check.fits is not None], ""
    as_if = _common(telling, whole=True)
    if not as_if and (as_if := _common(telling, whole=False)):
        partly = next(check for check in telling if not set(as_if) <= set(_named(check, whole=True)))
        place = whereabouts(partly, context.bench.target.signature).partition(";")[0]
    workloads = tuple(check.workload.name for check in telling)
    return Explanation(variant=variant, workloads=workloads, as_if=as_if, where=place)


def _common(telling: Sequence[Check], *, whole: bool) -> tuple[str, ...]:
    each = [_named(check, whole=whole) for check in telling]
    return tuple(as_if for as_if in each[0] if all(as_if in named for named in each)) if each else ()


def _named(check: Check, *, whole: bool) -> list[str]:
    """What explains an output, or all of it."""
    return [as_if for as_if, all_of_it in (check.fits or {}).items() if all_of_it or not whole]


def _chosen(context: Context, one: Failing) -> tuple[Workload, ...]:
    """Where it fails: the most telling first, then those with most wrong elements; usual values before others."""
    checked = [
        check
        for output in outputs_of(context.finished, VerifyOutput)
        for checks in output.variants
        if checks.variant == one.variant
        for check in checks.checks
        if check.wrong and check.inputs == "contiguous"
    ]
    rest = sorted(checked, key=lambda check: (check.workload.values != "normal", -check.wrong))
    small = [check for check in (one.telling, *rest) if check.total <= LARGEST] or [one.telling]
    return tuple({check.workload.name: check.workload for check in small}.values())[:MOST]
