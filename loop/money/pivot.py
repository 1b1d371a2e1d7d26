"""Go on, or do something else? Expected value of the options, and stop rules agreed on before.

What nobody knows stays unknown: an option without a probability has no expected value, but a probability from
which on it would pay. Nothing is guessed in its place.
"""

from collections.abc import Iterator, Sequence

from loop.base.ratios import times
from loop.model.index import SessionRow
from loop.money.model import MachineOption, Options, OptionValue, Pivot, StopRule

OVERRUN = 1.5
"""Budget + 50 %: beyond it a session was planned on something that is not so."""
WITHOUT_PROGRESS = 2
"""Sessions without measurable progress after which going on needs a reason."""
MARGIN = 0.02
"""A ratio that grew by less than this is the same ratio: `same` needs an interval within 2 %."""


def weigh(option: MachineOption, value_usd: float | None = None) -> OptionValue:
    """One option: p x value - cost, at both ends of its cost. `value_usd` stands where it does not say its own."""
    value = option.value_usd if option.value_usd is not None else value_usd
    low, high = option.usd
    p = option.probability
    gain = p * value if p is not None and value is not None else None
    return OptionValue(
        name=option.name,
        usd=option.usd,
        expected_usd=None if gain is None else (gain - high, gain - low),
        note=_note(option, value, gain),
    )


def _note(option: MachineOption, value: float | None, gain: float | None) -> str:
    """What follows for one option, in words."""
    low, high, p = *option.usd, option.probability
    if gain is not None:
        paying = "pays only at its lower cost" if gain > low else "does not pay even at its lowest cost"
        return "pays even at its highest cost" if gain >= high else paying
    if value is None and p is None:
        return f"unknown probability and value: their product has to be {_range(low, high)}"
    if value is None:
        worth = f"success has to be worth {_range(low / p, high / p)}" if p else "it cannot succeed"
        return f"unknown value: {worth}"
    if value <= 0 or low > value:
        return "unknown probability: it costs more than success is worth, whatever the probability"
    from_, to = f"{100 * low / value:.0f} %", f"{100 * high / value:.0f} %"
    span = to if from_ == to else f"{from_.removesuffix(' %')} to {to}"
    never = ", and not at all at its highest cost" if high > value else ""
    return f"unknown probability: it pays from a probability of {span}{never}"


def _range(low: float, high: float) -> str:
    return f"${low:,.0f}" if low == high else f"${low:,.0f} to ${high:,.0f}"


def pivot(options: Options | None, rules: Sequence[StopRule]) -> Pivot:
    """Stop rules and options together."""
    weighed = tuple(weigh(option, options.value_usd) for option in options.options) if options else ()
    best = None  # Better at its worst than every other option at its best, and than doing nothing.
    known = [(option, option.expected_usd) for option in weighed if option.expected_usd is not None]
    for option, (worst, _) in known:
        if worst > 0 and all(worst > other[1] for rival, other in known if rival is not option):
            best = option.name
    met = "; ".join(rule.rule for rule in rules if rule.holds)
    unknown = any(rule.holds is None for rule in rules)
    going_on = f"Do not go on as before: {met}." if met else "No stop rule is met" if rules else ""
    if rules and not met:
        going_on += ", as far as the records tell." if unknown else "."
    return Pivot(
        stop=bool(met),
        rules=tuple(rules),
        options=weighed,
        best=best,
        decision=" ".join(filter(None, (going_on, _choice(weighed, best)))),
    )


def _choice(options: Sequence[OptionValue], best: str | None) -> str:
    """What the expected values say; an option without one is named, for it may be the best of all."""
    if not options:
        return "No options were given: write them down, with cost, probability and value, and weigh them."
    unknown = [option.name for option in options if option.expected_usd is None]
    values = [option.expected_usd for option in options if option.expected_usd is not None]
    left = f" Unknown stays: {'; '.join(unknown)}." if unknown else ""
    if best is not None:
        return f"Of what is known, {best} has the highest expected value.{left}"
    if not values:
        return "No option has an expected value: say how likely it succeeds, and what success is worth."
    if all(high <= 0 for _, high in values):
        return f"No option with a known value pays: doing none of them is the best known choice.{left}"
    return f"The ranges of the expected values overlap: it depends.{left}"


def stop_rules(
    rows: Sequence[SessionRow], budget_s: float | None = None, spent_s: float | None = None
) -> list[StopRule]:
    """The stop rules against the ended sessions of one target on one device, oldest first.

    `budget_s` and `spent_s` are those of the session that is under way; without them the last one's count.
    """
    ended = [row for row in rows if not row.recorded and row.status in ("passed", "failed")]
    return [no_progress(ended), over_budget(ended, budget_s, spent_s), worse(ended)]


def no_progress(rows: Sequence[SessionRow]) -> StopRule:
    """Nothing newly right and no ratio beyond noise above its best, for two sessions."""
    rule = f"{WITHOUT_PROGRESS} sessions without measurable progress"
    if len(rows) <= WITHOUT_PROGRESS:
        return StopRule(rule=rule, holds=None, why="too few sessions have ended: three have to")
    last = range(len(rows) - WITHOUT_PROGRESS, len(rows))
    for index in reversed(last):
        progress = "; ".join(_progress(rows[:index], rows[index]))
        if progress:
            return StopRule(rule=rule, holds=False, why=f"{rows[index].id}: {progress}")
    return StopRule(rule=rule, holds=True, why=f"nothing new in {' and '.join(rows[index].id for index in last)}")


def _progress(before: Sequence[SessionRow], now: SessionRow) -> Iterator[str]:
    """What a session has that none before it had: a pass, a right variant, a ratio beyond noise above its best."""
    if before and before[-1].status == "failed" and now.status == "passed":
        yield "it passes again"
    for variant in now.variants:
        past = [row for row in before if variant in row.variants]
        if past and variant in past[-1].incorrect and _right(now, variant):
            yield f"{variant} is right"
        if variant not in now.ratios or variant in now.unsure:
            continue
        ratio = now.ratios[variant]
        sure = [row.ratios[variant] for row in past if variant in row.ratios and variant not in row.unsure]
        if not sure:
            yield f"{variant} at {times(ratio)}"
        elif ratio > max(sure) * (1 + MARGIN):
            yield f"{variant} at {times(ratio)}, its best before was {times(max(sure))}"


def _right(row: SessionRow, variant: str) -> bool:
    return variant in row.ratios and variant not in row.incorrect


def over_budget(rows: Sequence[SessionRow], budget_s: float | None, spent_s: float | None) -> StopRule:
    """This session against its budget, else the last one against what was predicted for it."""
    rule, who = f"budget + {100 * (OVERRUN - 1):.0f} %", "this session"
    if budget_s is None or spent_s is None:
        last = rows[-1] if rows else None
        if last is None or last.predicted is None:
            return StopRule(rule=rule, holds=None, why="no session with a prediction")
        who, spent_s, budget_s = last.id, last.seconds, last.predicted.seconds
    why = f"{who} took {spent_s / 60:.1f} min of {budget_s / 60:.1f} ({100 * spent_s / budget_s:.0f} %)"
    return StopRule(rule=rule, holds=spent_s > OVERRUN * budget_s, why=why)


def worse(rows: Sequence[SessionRow]) -> StopRule:
    """A variant was right, its files changed, and now it is wrong."""
    rule = "a fix that worsens correctness"
    if len(rows) < 2:
        return StopRule(rule=rule, holds=None, why="there is no session to compare with")
    now = rows[-1]
    for variant in now.incorrect:
        past = [row for row in rows[:-1] if variant in row.variants]
        if past and _right(past[-1], variant) and past[-1].ground != now.ground:
            why = f"{variant} was right in {past[-1].id}, is wrong in {now.id}"
            return StopRule(rule=rule, holds=True, why=why)
    return StopRule(rule=rule, holds=False, why=f"no variant became wrong in {now.id}")
