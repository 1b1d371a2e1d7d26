"""Turns of debugging: one hypothesis and one change at a time, and no build that was found wrong before."""

from collections.abc import Iterable, Mapping, Sequence

from loop.base.ratios import times
from loop.debug.probing import sides
from loop.gate.kernel import distinct, extra_sets, workloads
from loop.gate.verify import Job, verify
from loop.model.change import PastSearch, TriedPoint
from loop.model.debugging import HypothesesOutput, ScopeOutput, Try
from loop.model.dtypes import Device
from loop.model.tuning import Value, Values
from loop.steps.context import Context, NoArguments, Result, Working

Point = tuple[tuple[str, Value], ...]
"""One choice of all values, as what can be looked up."""


def repeated(tries: Sequence[Try], now: Mapping[str, str | None], ground: str) -> tuple[Try, ...]:
    """The last try of each variant whose very build was found wrong; without a build, the target's very files."""
    last: dict[str, Try] = {}
    for earlier in tries:
        same_files = now.get(earlier.variant) is None and bool(ground) and earlier.ground == ground
        same = same_files if earlier.build_id is None else earlier.build_id == now.get(earlier.variant)
        if same and not earlier.right:
            last[earlier.variant] = earlier
    return tuple(last.values())


def still_wrong(tries: Sequence[Try]) -> tuple[Try, ...]:
    """The last try of each variant, where it was wrong."""
    return tuple(
        attempt for attempt in {attempt.variant: attempt for attempt in tries}.values() if not attempt.right
    )


def sentence(attempt: Try) -> str:
    """What a try showed, as a lesson."""
    outcome = "that was it" if attempt.right else f"it did not cure {attempt.variant}: {attempt.message}"
    return f"Tried in {attempt.session}: {attempt.hypothesis}; {outcome}."


GAIN = 0.01
"""Share by which a point has to be behind the leader of its search to have lost: closer ones may win yet."""


def lost_points(searches: Iterable[PastSearch], tuning: str, ground: str) -> dict[Point, str]:
    """Points that lost on the same ground, each with where and how; the last search that had a point counts."""
    lost: dict[Point, str] = {}
    for search in searches:
        if ground and search.ground == ground:
            mine = [trial for trial in search.trials if trial.tuning == tuning and trial.outcome != "lost"]
            leader = max([trial.ratio or 0.0 for trial in mine if not _taken_back(trial, search)], default=0.0)
            for trial in mine:
                why = _lost(trial, search, leader)
                lost.pop(point(trial.values), None)
                lost |= {point(trial.values): why} if why else {}
    return lost


def point(values: Values) -> Point:
    """Values as what can be looked up."""
    return tuple(sorted(values.items()))


def _taken_back(tried: TriedPoint, search: PastSearch) -> bool:
    return bool(search.taken_back) and tried.outcome == "best"


def _lost(tried: TriedPoint, search: PastSearch, leader: float) -> str:
    """Why a point lost; empty where it did not lose, or where that is unknown."""
    if tried.outcome in ("refused", "wrong"):
        return f"{tried.reason or tried.outcome} (session {search.session})"
    if _taken_back(tried, search):
        return f"taken back in session {search.session}: {search.taken_back}"
    if tried.ratio is None or tried.ratio * (1 + GAIN) >= leader:
        return ""
    return f"{times(tried.ratio, 3)} where the best had {times(leader, 3)} (session {search.session})"


TIMES = 3
"""What changing several kernels at once costs, in times of the estimate, by the author of the pattern."""
ASK = '`--hypothesis "what you think is wrong, and what you changed for it"`'


def hypotheses(context: Context, arguments: NoArguments) -> Working[HypothesesOutput]:
    """What was tried in earlier sessions; a build that was found wrong there is not tried again."""
    by_name = yield from sides(context, (*context.task.variants, *context.task.emulated))
    now = {name: side.build_id for name, side in by_name.items()}
    mine = tuple(attempt for attempt in context.past.tries if attempt.variant in now)
    again = repeated(mine, now, context.task.ground)
    missing = still_wrong(mine) if not context.task.hypothesis and not again else ()
    hint = f"say what this change is to cure: {ASK}" if missing else None
    if again:
        hint = f"change its source first; what was found then: loop report {again[0].session}"
    return Result(
        HypothesesOutput(
            ok=not again and not missing,
            message=_describe_turn(context, mine, again, missing),
            hint=hint,
            identity=" ".join(f"{name}={build_id}" for name, build_id in now.items()),
            hypothesis=context.task.hypothesis,
            builds={name: build_id for name, build_id in now.items() if build_id},
            tries=mine,
            repeated=tuple(attempt.variant for attempt in again),
            learned=tuple(sentence(attempt) for attempt in mine if attempt.hypothesis),
        )
    )


def _describe_turn(context: Context, mine: Sequence[Try], repeated: Sequence[Try], missing: Sequence[Try]) -> str:
    if repeated:
        attempt = repeated[0]
        thought = f", when it was thought: {attempt.hypothesis}" if attempt.hypothesis else ""
        return f"{attempt.variant} as it is was already tried in {attempt.session}: {attempt.message}{thought}"
    if missing:
        return (
            f"{missing[0].variant} was wrong in {missing[0].session}, and no hypothesis stands behind this change"
        )
    turn = f"turn {len(dict.fromkeys(attempt.session for attempt in mine if not attempt.right)) + 1}"
    return f"{turn}: {context.task.hypothesis or 'nothing was tried before'}"


def scope(context: Context, arguments: NoArguments) -> Working[ScopeOutput]:
    """How many variants were changed since their known good, and whether the simplest of them is right."""
    names = (*context.task.variants, *context.task.emulated)
    by_name = yield from sides(context, names)
    good = context.past.known_good
    changed = tuple(
        name
        for name, side in by_name.items()
        if name in good and side.build_id is not None and good[name].build_id != side.build_id
    )
    simple = changed[0] if len(changed) > 1 else ""
    right = True
    if simple:
        device: Device = "cuda" if simple in context.task.emulated else context.bench.device
        checked = distinct(workloads(context, (*context.task.plan.workloads, *extra_sets(context)), device=device))
        (checks,) = yield from verify(context.bench, [Job(by_name[simple], checked, enough=True)])
        right = checks.right
    minutes = context.task.plan.budget.minutes * (1 if right else TIMES)
    return Result(
        ScopeOutput(
            ok=right,
            message=_describe_scope(changed, right, minutes),
            hint=None if right else f"put {', '.join(changed[1:])} back as it was, and get {simple} right first",
            identity=" ".join(f"{name}={side.build_id}" for name, side in by_name.items()),
            not_exercised=tuple(
                f"what changed in {name}: it has no build" for name in names if name not in by_name
            ),
            changed=changed,
            count=len(changed),
            simple=simple,
            simple_right=right,
            estimate_minutes=minutes,
        )
    )


def _describe_scope(changed: Sequence[str], right: bool, minutes: float) -> str:
    if len(changed) < 2:
        return f"{changed[0]} alone was changed" if changed else "no variant was changed since its known good"
    if right:
        return f"{', '.join(changed)} were changed; the simplest, {changed[0]}, is right"
    return (
        f"{', '.join(changed)} were changed at once, and the simplest, {changed[0]}, is not right: "
        f"count with {minutes:g} min, {TIMES} times the estimate"
    )
