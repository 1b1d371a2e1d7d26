"""Turns of debugging: one hypothesis and one change at a time, and no repeat of a wrong build."""

from loop.gate.kernel import build_sides, distinct_workloads, planned_check_sets, workloads
from loop.gate.verify import Job, verify
from loop.model.dtypes import Device
from loop.model.output import EarlierTry, TurnOutput
from loop.steps.context import Context, NoArguments, Result, RunningAction


def hypotheses(context: Context, arguments: NoArguments) -> RunningAction[TurnOutput]:
    """List earlier tries; fail if this build was wrong before, or the last one was and there is no
    hypothesis. A variant without a build counts as the same where the target's files are."""
    task = context.task
    sides, _ = yield from build_sides(context, (*task.variants, *task.emulated))
    identities = {name: side.build_id or task.sources_hash for name, side in sides.items()}
    tries = tuple(attempt for attempt in context.past.verified_builds if attempt.variant in sides)
    wrong_tries = [attempt for attempt in tries if not attempt.right]
    repeated = dict[str, EarlierTry]()
    for attempt in wrong_tries:
        identity = identities[attempt.variant]
        if identity and identity == (attempt.build_id or attempt.ground):
            repeated[attempt.variant] = attempt
    latest = {attempt.variant: attempt for attempt in tries}.values()
    unexplained = [attempt for attempt in latest if not attempt.right and not task.hypothesis]
    turn = len({attempt.session for attempt in wrong_tries}) + 1
    message, hint = f"turn {turn}: {task.hypothesis or 'nothing was tried before'}", None
    if repeated:
        attempt = next(iter(repeated.values()))
        thought = f", when it was thought: {attempt.hypothesis}" if attempt.hypothesis else ""
        message = f"{attempt.variant} as it is was already tried in {attempt.session}"
        message += f": {attempt.message}{thought}"
        hint = f"change its source first; what was found then: loop report {attempt.session}"
    elif unexplained:
        failure = f"{unexplained[0].variant} was wrong in {unexplained[0].session}"
        message = f"{failure}, and no hypothesis stands behind this change"
        option = '`--hypothesis "what you think is wrong, and what you changed for it"`'
        hint = f"say what this change is to cure: {option}"
    learned = []
    for attempt in (attempt for attempt in tries if attempt.hypothesis):
        failure = f"it did not cure {attempt.variant}: {attempt.message}"
        outcome = "that was it" if attempt.right else failure
        learned.append(f"Tried in {attempt.session}: {attempt.hypothesis}; {outcome}.")
    return Result(
        TurnOutput(
            ok=not repeated and not unexplained,
            message=message,
            hint=hint,
            identity=" ".join(f"{name}={side.build_id}" for name, side in sides.items()),
            hypothesis=task.hypothesis,
            tries=tries,
            repeated=tuple(repeated),
            learned=tuple(learned),
        )
    )


def scope(context: Context, arguments: NoArguments) -> RunningAction[TurnOutput]:
    """Count variants changed since their known-good build; of several the first must be right."""
    task, good = context.task, context.past.known_good
    names = (*task.variants, *task.emulated)
    sides, _ = yield from build_sides(context, names)
    changed = [name for name, side in sides.items() if name in good and side.build_id]
    changed = [name for name in changed if sides[name].build_id != good[name].build_id]
    message = "no variant was changed since its known good"
    if changed:
        message = f"{changed[0]} alone was changed"
    if good.keys().isdisjoint(sides):
        message = "nothing to compare with: no known good yet"
    simplest, is_right, hint = "", True, None
    if len(changed) > 1:
        simplest = changed[0]
        device: Device = "cuda" if simplest in task.emulated else context.bench.device
        sets = (*task.plan.workloads, *planned_check_sets(context))
        judged = distinct_workloads(workloads(context, sets, device=device))
        (checks,) = yield from verify(context.bench, [Job(sides[simplest], judged, fail_fast=True)])
        is_right, listed = checks.is_right, ", ".join(changed)
        message = f"{listed} were changed; the simplest, {simplest}, is right"
        if not is_right:
            message = f"{listed} were changed at once, and the simplest, {simplest}, is not right"
            hint = f"put {', '.join(changed[1:])} back as it was, and get {simplest} right first"
    unknown = [f"what changed in {name}: it has no build" for name in names if name not in sides]
    new = [name for name, side in sides.items() if side.build_id and name not in good]
    unknown += [f"what changed in {name}: it has no known good yet" for name in new]
    return Result(
        TurnOutput(
            ok=is_right,
            message=message,
            hint=hint,
            identity=" ".join(f"{name}={side.build_id}" for name, side in sides.items()),
            not_exercised=tuple(unknown),
            changed=tuple(changed),
            count=len(changed),
            simple=simplest,
            simple_right=is_right,
        )
    )
