"""Turns of debugging: one hypothesis and one change at a time, and no build that was found wrong before."""

from collections.abc import Iterable, Mapping, Sequence

from loop.base.ratios import times
from loop.debug.probing import sides
from loop.gate.kernel import distinct, extra_sets, workloads
from loop.gate.verify import Job, verify
from loop.model.change import PastSearch, TriedPoint
from loop.model.debugging import EarlierTry, HypothesesOutput, ScopeOutput
from loop.model.dtypes import Device
from loop.model.tuning import Value, Values
from loop.steps.context import Context, NoArguments, Result, Working

Point = tuple[tuple[str, Value], ...]
"""One choice of all values, as what can be looked up."""


def repeated(tries: Sequence[EarlierTry], now: Mapping[str, str | None], ground: str) -> tuple[EarlierTry, ...]:
    """The last try of each variant whose very build was found wrong; without a build, the target's very files."""
    last: dict[str, EarlierTry] = {}
    for earlier in tries:
        same_files = now.get(earlier.variant) is None and bool(ground) and earlier.ground == ground
        same = same_files if earlier.build_id is None else earlier.build_id == now.get(earlier.variant)
        if same and not earlier.right:
            last[earlier.variant] = earlier
    return tuple(last.values())


def still_wrong(tries: Sequence[EarlierTry]) -> tuple[EarlierTry, ...]:
    """The last try of each variant, where it was wrong."""
    return tuple(one for one in {one.variant: one for one in tries}.values() if not one.right)


def sentence(one: EarlierTry) -> str:
    """What a try showed, as a lesson."""
    outcome = "that was it" if one.right else f"it did not cure {one.variant}: {one.message}"
    return f"Tried in {one.session}: {one.hypothesis}; {outcome}."


GAIN = 0.01
"""Share by which a point has to be behind the leader of its search to have lost: closer ones may win yet."""


def lost_points(searches: Iterable[PastSearch], tuning: str, ground: str) -> dict[Point, str]:
    """Points that lost on the same ground, each with where and how; the last search that had a point counts."""
    lost: dict[Point, str] = {}
    for search in searches:
        if ground and search.ground == ground:
            mine = [one for one in search.trials if one.tuning == tuning and one.outcome != "lost"]
            leader = max([one.ratio or 0.0 for one in mine if not _taken_back(one, search)], default=0.0)
            for one in mine:
                why = _lost(one, search, leader)
                lost.pop(point(one.values), None)
                lost |= {point(one.values): why} if why else {}
    return lost


def point(values: Values) -> Point:
    """Values as what can be looked up."""
    return tuple(sorted(values.items()))


def _taken_back(one: TriedPoint, search: PastSearch) -> bool:
    return bool(search.taken_back) and one.outcome == "best"


def _lost(one: TriedPoint, search: PastSearch, leader: float) -> str:
    """Why a point lost; empty where it did not, or nobody knows."""
    if one.outcome in ("refused", "wrong"):
        return f"{one.reason or one.outcome} (session {search.session})"
    if _taken_back(one, search):
        return f"taken back in session {search.session}: {search.taken_back}"
    if one.ratio is None or one.ratio * (1 + GAIN) >= leader:
        return ""
    return f"{times(one.ratio, 3)} where the best had {times(leader, 3)} (session {search.session})"


TIMES = 3
"""What changing several kernels at once costs, in times of the estimate, by the author of the pattern."""
ASK = '`--hypothesis "what you think is wrong, and what you changed for it"`'


def hypotheses(context: Context, arguments: NoArguments) -> Working[HypothesesOutput]:
    """What was tried in earlier sessions; a build that was found wrong there is not tried again."""
    made = yield from sides(context, (*context.task.variants, *context.task.emulated))
    now = {name: side.build_id for name, side in made.items()}
    mine = tuple(one for one in context.past.tries if one.variant in now)
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
            repeated=tuple(one.variant for one in again),
            learned=tuple(sentence(one) for one in mine if one.hypothesis),
        )
    )


def _describe_turn(
    context: Context, mine: Sequence[EarlierTry], repeated: Sequence[EarlierTry], missing: Sequence[EarlierTry]
) -> str:
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


def scope(context: Context, arguments: NoArguments) -> Working[ScopeOutput]:
    """How many variants were changed since their known good, and whether the simplest of them is right."""
    names = (*context.task.variants, *context.task.emulated)
    made = yield from sides(context, names)
    good = context.past.known_good
    changed = tuple(
        name
        for name, side in made.items()
        if name in good and side.build_id is not None and good[name].build_id != side.build_id
    )
    simple = changed[0] if len(changed) > 1 else ""
    right = True
    if simple:
        device: Device = "cuda" if simple in context.task.emulated else context.bench.device
        checked = distinct(workloads(context, (*context.task.plan.workloads, *extra_sets(context)), device=device))
        (checks,) = yield from verify(context.bench, [Job(made[simple], checked, enough=True)])
        right = checks.right
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


def _describe_scope(changed: Sequence[str], right: bool, minutes: float) -> str:
    if len(changed) < 2:
        return f"{changed[0]} alone was changed" if changed else "no variant was changed since its known good"
    if right:
        return f"{', '.join(changed)} were changed; the simplest, {changed[0]}, is right"
    return (
        f"{', '.join(changed)} were changed at once, and the simplest, {changed[0]}, is not right: "
        f"count with {minutes:g} min, {TIMES} times the estimate"
    )
