"""What advice promises, and what came of it. Pure."""

from collections.abc import Iterable, Mapping

from loop.base.expressions import Expression, ExpressionError
from loop.model.index import SessionRow
from loop.model.profile import Fact, GainOutcome, Promise, Promised, TreeRule
from loop.model.verdict import Interval
from loop.report import format as say


def promise(rule: TreeRule, facts: Mapping[str, Fact]) -> Promise | None:
    """What a leaf promises; None where it states no interval, or one that unknown facts decide."""
    stated = _stated(rule, facts)
    return None if stated is None else Promise(advice=rule.bottleneck, stated=stated)


def _stated(rule: TreeRule, facts: Mapping[str, Fact]) -> Interval | None:
    if rule.times is None:
        return None
    known = {name: value for name, value in facts.items() if value is not None}
    try:
        low, high = (Expression.parse(str(end)).evaluate_number(known) for end in rule.times)
    except ExpressionError:
        return None
    return (low, high) if 0 < low <= high else None


def outcomes(rows: Iterable[SessionRow]) -> tuple[GainOutcome, ...]:
    """What came of the advice of all sessions. `rows`: oldest first.

    A change that a session judged is an outcome of the advice in its brief, and closes what was promised before.
    Other advice is held against the next session of the same target and environment that timed another build
    of the variant on the same workload.
    """
    outcomes: list[GainOutcome] = []
    open_: dict[tuple[object, ...], Promised] = {}
    for row in rows:
        outcomes += (gain.model_copy(update={"session": row.id}) for gain in row.gains)
        place = (row.target, row.device, row.threads, row.environment)
        judged = {*(gain.variant for gain in row.gains), *(candidate.variant for candidate in row.kept)}
        for variant in judged:
            open_.pop((*place, variant), None)
        for variant, build in row.builds.items():
            promised = open_.get((*place, variant))
            if (
                promised is not None
                and promised.build != build
                and promised.workload in row.speeds.get(variant, {})
            ):
                outcomes.append(_later(open_.pop((*place, variant)), row))
        open_ |= {(*place, promise.variant): promise for promise in row.promises if promise.variant not in judged}
    return tuple(outcomes)


def _later(promised: Promised, row: SessionRow) -> GainOutcome:
    return GainOutcome(
        promise=promised.promise,
        variant=promised.variant,
        workload=promised.workload,
        actual=row.speeds[promised.variant][promised.workload] / promised.ratio,
        basis="later session",
        session=row.id,
    )


def held(outcome: GainOutcome) -> str:
    """`1.1x to 1.2x: 1.14x, inside`."""
    return f"{outcome.promise.text}: {say.times(outcome.actual)}, {outcome.side}"
