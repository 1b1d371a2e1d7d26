"""Turns of debugging: one hypothesis and one change at a time, and no repeat of a wrong build."""

from loop.gate.kernel import build_sides, distinct_workloads, planned_check_sets, workloads
from loop.gate.verify import Job, verify
from loop.model.dtypes import Device
from loop.model.output import EarlierTry, TurnOutput
from loop.steps.context import Context, NoArguments, Result, RunningAction


def hypotheses(context: Context, arguments: NoArguments) -> RunningAction[TurnOutput]:
    """List earlier tries; fail if this build was wrong before, or the last one was and no hypothesis is given."""
    task = context.task
    sides, _ = yield from build_sides(context, (*task.variants, *task.emulated))
    build_ids = {name: side.build_id for name, side in sides.items()}
    tries = tuple(attempt for attempt in context.past.verified_builds if attempt.variant in build_ids)

    def is_same_build(attempt: EarlierTry) -> bool:
        """Whether an earlier try used the same build, or without a build the same files."""
        build_id = build_ids[attempt.variant]
        if attempt.build_id is None:
            return build_id is None and bool(task.sources_hash) and attempt.ground == task.sources_hash
        return attempt.build_id == build_id

    wrong_tries = [attempt for attempt in tries if not attempt.right]
    repeated = {attempt.variant: attempt for attempt in wrong_tries if is_same_build(attempt)}
    latest = {attempt.variant: attempt for attempt in tries}
    still_wrong = [attempt for attempt in latest.values() if not attempt.right]
    is_unexplained = bool(still_wrong) and not task.hypothesis and not repeated
    turn = len({attempt.session for attempt in wrong_tries}) + 1
    message, hint = f"turn {turn}: {task.hypothesis or 'nothing was tried before'}", None
    if repeated:
        repeated_try = next(iter(repeated.values()))
        hypothesis = f", when it was thought: {repeated_try.hypothesis}" if repeated_try.hypothesis else ""
        variant, session = repeated_try.variant, repeated_try.session
        message = f"{variant} as it is was already tried in {session}: {repeated_try.message}{hypothesis}"
        hint = f"change its source first; what was found then: loop report {session}"
    elif is_unexplained:
        failure = f"{still_wrong[0].variant} was wrong in {still_wrong[0].session}"
        message = f"{failure}, and no hypothesis stands behind this change"
        option = '`--hypothesis "what you think is wrong, and what you changed for it"`'
        hint = f"say what this change is to cure: {option}"
    learned = []
    for attempt in tries:
        if attempt.hypothesis:
            failure = f"it did not cure {attempt.variant}: {attempt.message}"
            outcome = "that was it" if attempt.right else failure
            learned.append(f"Tried in {attempt.session}: {attempt.hypothesis}; {outcome}.")
    return Result(
        TurnOutput(
            ok=not repeated and not is_unexplained,
            message=message,
            hint=hint,
            identity=" ".join(f"{name}={build_id}" for name, build_id in build_ids.items()),
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
    by_name, _ = yield from build_sides(context, names)
    ids = {name: side.build_id for name, side in by_name.items() if side.build_id is not None}
    changed = tuple(name for name in ids if name in good and good[name].build_id != ids[name])
    message = f"{changed[0]} alone was changed" if changed else "no variant was changed since its known good"
    simplest, is_right, hint = "", True, None
    if len(changed) > 1:
        simplest = changed[0]
        device: Device = "cuda" if simplest in task.emulated else context.bench.device
        sets = (*task.plan.workloads, *planned_check_sets(context))
        checked = distinct_workloads(workloads(context, sets, device=device))
        (checks,) = yield from verify(context.bench, [Job(by_name[simplest], checked, fail_fast=True)])
        is_right, names_text = checks.is_right, ", ".join(changed)
        message = f"{names_text} were changed; the simplest, {simplest}, is right"
        if not is_right:
            message = f"{names_text} were changed at once, and the simplest, {simplest}, is not right"
            hint = f"put {', '.join(changed[1:])} back as it was, and get {simplest} right first"
    unbuilt = [f"what changed in {name}: it has no build" for name in names if name not in by_name]
    return Result(
        TurnOutput(
            ok=is_right,
            message=message,
            hint=hint,
            identity=" ".join(f"{name}={side.build_id}" for name, side in by_name.items()),
            not_exercised=tuple(unbuilt),
            changed=changed,
            count=len(changed),
            simple=simplest,
            simple_right=is_right,
        )
    )
