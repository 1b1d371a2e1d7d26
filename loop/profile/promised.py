"""What advice promises, what came of it, and what that makes of the next promise. Pure.

A bound of the next interval is the geometric mean of two figures. One is the rule's own bound; it counts as
`PRIOR` outcomes. The other is a quantile of the n outcomes on record, `TAIL` from the end; it counts as n. An
outcome is taken as a multiple of the middle of its own interval, since a rule's bounds may depend on the facts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from loop.base.expressions import Expression, ExpressionError
from loop.model.index import SessionRow
from loop.model.profile import Fact, GainOutcome, Promise, Promised, TreeRule
from loop.model.verdict import Interval
from loop.report import format as say

PRIOR = 4
"""Outcomes that a rule's own interval is worth."""
TAIL = 0.1
"""Share of outcomes beyond each bound."""
RECENT = 40
"""Outcomes of one advice that count, the newest."""
RULE = (
    f"a bound of an expected gain is a geometric mean: the rule's own counts as {PRIOR} outcomes, "
    f"the {100 * TAIL:.0f} % or {100 - 100 * TAIL:.0f} % quantile of the n outcomes as n"
)


def promise(rule: TreeRule, facts: Mapping[str, Fact], before: Sequence[GainOutcome]) -> Promise | None:
    """What a leaf promises; None where it states no interval, or one that unknown facts decide."""
    stated = _stated(rule, facts)
    if stated is None:
        return None
    return renewed(Promise(advice=rule.bottleneck, stated=stated, expected=stated), before)


def renewed(promise: Promise, before: Sequence[GainOutcome]) -> Promise:
    """A promise by the outcomes there are now."""
    known = [earlier for earlier in before if earlier.promise.advice == promise.advice][-RECENT:]
    return Promise(
        advice=promise.advice,
        stated=promise.stated,
        expected=expected(promise.stated, known),
        outcomes=len(known),
        inside=sum(promise.side == "inside" for promise in known),
    )


def _stated(rule: TreeRule, facts: Mapping[str, Fact]) -> Interval | None:
    if rule.times is None:
        return None
    known = {name: value for name, value in facts.items() if value is not None}
    try:
        low, high = (Expression.parse(str(end), arithmetic=True).evaluate_number(known) for end in rule.times)
    except ExpressionError:
        return None
    return (low, high) if 0 < low <= high else None


def expected(stated: Interval, before: Sequence[GainOutcome]) -> Interval:
    """The stated interval, drawn towards what came of such advice."""
    if not before:
        return stated
    multiples = sorted(outcome.actual / _middle(outcome.promise.stated) for outcome in before)
    quantiles = [_middle(stated) * _quantile(multiples, share) for share in (TAIL, 1 - TAIL)]
    count = len(multiples)
    low, high = (
        math.exp((PRIOR * math.log(own) + count * math.log(quantile)) / (PRIOR + count))
        for own, quantile in zip(stated, quantiles, strict=True)
    )
    return low, high


def _middle(interval: Interval) -> float:
    return math.sqrt(interval[0] * interval[1])


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two values beside that share of the way from the first to the last."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


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


def in_words(promise: Promise | None) -> str:
    """`1.1x to 1.2x; no outcome yet`; empty where nothing was promised."""
    if promise is None:
        return ""
    text = _between(promise.stated)
    if not promise.outcomes:
        return f"{text}; no outcome yet"
    share = f"{promise.inside} of {promise.outcomes} outcomes lay inside"
    return f"{text}; {share}, so {_between(promise.expected)} is expected"


def _between(interval: Interval) -> str:
    return f"{say.times(interval[0])} to {say.times(interval[1])}"


def held(outcome: GainOutcome) -> str:
    """`1.1x to 1.2x: 1.14x, inside`."""
    return f"{_between(outcome.promise.stated)}: {say.times(outcome.actual)}, {outcome.side}"
