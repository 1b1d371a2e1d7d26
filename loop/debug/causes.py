"""As if what had been done wrong? Wrong outputs are held against known faults, on several workloads."""

from collections.abc import Sequence

from loop.debug.probing import HANG_S, failing_sides, failing_variants
from loop.debug.shrinking import Failing
from loop.debug.whereabouts import whereabouts
from loop.gate.verify import Job, verify
from loop.model.debugging import Cause, CausesOutput
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


def _cause(context: Context, variant: str, wrong: Sequence[Check]) -> Cause:
    """The faults that explain every one of them; those that explain whole outputs before others."""
    each = [{fit.as_if: fit.whole for fit in check.fits} for check in wrong]
    common = [as_if for as_if in each[0] if all(as_if in fits for fits in each)]
    whole = [as_if for as_if in common if all(fits[as_if] for fits in each)]
    place = "" if whole or not common else whereabouts(wrong[0], context.bench.target.signature)
    return Cause(
        variant=variant,
        workloads=tuple(check.workload.name for check in wrong),
        as_if=tuple(whole or common),
        where=place.partition(";")[0],
    )


def _chosen(context: Context, one: Failing) -> tuple[Workload, ...]:
    """Where it fails: the most telling first, then those with most wrong elements; usual values before others."""
    checked = [
        check
        for output in outputs_of(context.finished, VerifyOutput)
        for checks in output.variants
        if checks.variant == one.variant
        for check in checks.checks
        if check.wrong and check.inputs == "contiguous" and check.total <= LARGEST
    ]
    rest = sorted(checked, key=lambda check: (check.workload.values != "normal", -check.wrong))
    places = {check.workload.name: check.workload for check in (one.telling, *rest)}
    return tuple(places.values())[:MOST]
