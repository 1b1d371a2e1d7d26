"""Turns of debugging: one hypothesis and one change at a time, and no build that was found wrong before."""

from collections.abc import Generator, Sequence

from loop.base.processes import Tick
from loop.debug import tries as earlier
from loop.debug.probing import sides
from loop.gate.kernel import distinct, extra_sets, workloads
from loop.gate.verify import Job, verify
from loop.model.debugging import HypothesesOutput, ScopeOutput, Try
from loop.model.dtypes import Device
from loop.steps.context import Context, NoArguments, Result, Working
from loop.workers.bench import Side

TIMES = 3
"""What changing several kernels at once costs, in times of the estimate, by the author of the pattern."""
ASK = '`--hypothesis "what you think is wrong, and what you changed for it"`'


def hypotheses(context: Context, arguments: NoArguments) -> Working[HypothesesOutput]:
    """What was tried in earlier sessions; a build that was found wrong there is not tried again."""
    made = yield from sides(context, (*context.task.variants, *context.task.emulated))
    now = {name: side.build_id for name, side in made.items()}
    mine = tuple(one for one in context.past.tries if one.variant in now)
    repeated = earlier.repeated(mine, now, context.task.ground)
    missing = earlier.still_wrong(mine) if not context.task.hypothesis and not repeated else ()
    return Result(
        HypothesesOutput(
            ok=not repeated and not missing,
            message=_describe_turn(context, mine, repeated, missing),
            hint=_hint(repeated, missing),
            identity=" ".join(f"{name}={build_id}" for name, build_id in now.items()),
            hypothesis=context.task.hypothesis,
            builds={name: build_id for name, build_id in now.items() if build_id},
            tries=mine,
            repeated=tuple(one.variant for one in repeated),
            learned=tuple(earlier.sentence(one) for one in mine if one.hypothesis),
        )
    )


def _describe_turn(context: Context, mine: Sequence[Try], repeated: Sequence[Try], missing: Sequence[Try]) -> str:
    if repeated:
        one = repeated[0]
        thought = f", when it was thought: {one.hypothesis}" if one.hypothesis else ""
        return f"{one.variant} as it is was already tried in {one.session}: {one.message}{thought}"
    if missing:
        return (
            f"{missing[0].variant} was wrong in {missing[0].session}, and no hypothesis stands behind this change"
        )
    turn = f"turn {len(dict.fromkeys(one.session for one in mine if not one.right)) + 1}"
    return f"{turn}: {context.task.hypothesis or 'nothing was tried before'}"


def _hint(repeated: Sequence[Try], missing: Sequence[Try]) -> str | None:
    if repeated:
        return f"change its source first; what was found then: loop report {repeated[0].session}"
    return f"say what this change is to cure: {ASK}" if missing else None


def scope(context: Context, arguments: NoArguments) -> Working[ScopeOutput]:
    """How many variants were changed since their known good, and whether the simplest of them is right."""
    names = (*context.task.variants, *context.task.emulated)
    made = yield from sides(context, names)
    changed = tuple(name for name, side in made.items() if _is_changed(context, side))
    simple = changed[0] if len(changed) > 1 else ""
    right = (yield from _is_right(context, made[simple])) if simple else True
    minutes = context.task.plan.budget.minutes * (1 if right else TIMES)
    return Result(
        ScopeOutput(
            ok=right,
            message=_describe_scope(changed, right, minutes),
            hint=None if right else f"put {', '.join(changed[1:])} back as it was, and get {simple} right first",
            identity=" ".join(f"{name}={side.build_id}" for name, side in made.items()),
            not_exercised=tuple(f"what changed in {name}: it has no build" for name in names if name not in made),
            changed=changed,
            count=len(changed),
            simple=simple,
            simple_right=right,
            estimate_minutes=minutes,
        )
    )


def _is_changed(context: Context, side: Side) -> bool:
    """Whether a variant has a known good, and is another build now."""
    known = context.past.known_good.get(side.name)
    return known is not None and side.build_id is not None and known.build_id != side.build_id


def _is_right(context: Context, side: Side) -> Generator[Tick, None, bool]:
    """Whether a variant passes the whole gate."""
    device: Device = "cuda" if side.name in context.task.emulated else context.bench.device
    sets = (*context.task.plan.workloads, *extra_sets(context))
    checked = distinct(workloads(context, sets, device=device))
    (checks,) = yield from verify(context.bench, [Job(side, checked, enough=True)])
    return checks.right


def _describe_scope(changed: Sequence[str], right: bool, minutes: float) -> str:
    if len(changed) < 2:
        return f"{changed[0]} alone was changed" if changed else "no variant was changed since its known good"
    if right:
        return f"{', '.join(changed)} were changed; the simplest, {changed[0]}, is right"
    return (
        f"{', '.join(changed)} were changed at once, and the simplest, {changed[0]}, is not right: "
        f"count with {minutes:g} min, {TIMES} times the estimate"
    )
