"""What the report says of decisions with money: both sides, in lines and tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.decision import KeepOutput, OptionValue, PivotOutput, StopCost, hours_text
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

HELD = {True: "met", False: "not met", None: "unknown"}


@dataclass(frozen=True)
class Decisions:
    """Keep or stop the GPU, go on or pivot."""

    lines: tuple[str, ...]
    """Both sides of keeping the GPU."""
    rules: Table | None
    """Stop rules, each with what the records say."""
    options: Table | None
    """Ways to go on."""
    verdict: str
    """What follows from rules and options; empty where nobody asked."""


def decisions(finished: Sequence[Finished]) -> Decisions:
    """Of each kind the last that was decided."""
    kept = outputs_of(finished, KeepOutput)[-1:]
    weighed = [output.pivot for output in outputs_of(finished, PivotOutput) if output.pivot][-1:]
    rules = [(rule.rule, HELD[rule.holds], rule.why) for one in weighed for rule in one.rules]
    options = [_option(option) for one in weighed for option in one.options]
    return Decisions(
        lines=tuple(line for output in kept for line in _keep(output)),
        rules=filled(columns("Stop rule", "Met", "Why"), rules),
        options=filled(columns("Option", ">Cost", ">Probability", ">Expected value", "What follows"), options),
        verdict=weighed[0].decision if weighed else "",
    )


def _keep(output: KeepOutput) -> Iterator[str]:
    yield output.message
    if output.stop is None or output.break_even_hours is None:
        return
    stop, (low, high) = output.stop, output.break_even_hours
    yield f"Idling: {say.rate(output.gpu_usd_per_hour)} an hour"
    yield f"A stop: {_span(say.usd(stop.low_usd), say.usd(stop.high_usd))}; {stop.source}{_waiting(stop)}"
    yield f"Break-even: {_span(hours_text(low), hours_text(high))} of idling"
    if output.idle is not None:
        seen = output.idle
        range_ = f"{hours_text(seen.low_hours)} to {hours_text(seen.high_hours)}"
        count = say.count(seen.gaps, "gap")
        yield f"{count} between sessions so far: median {hours_text(seen.median_hours)}, {range_}"
    for policy in output.policies:
        yield f"{_policy(policy.keep_hours)} would have cost {say.usd(policy.usd_per_gap)} a gap"


def _policy(keep_hours: float | None) -> str:
    if keep_hours is None:
        return "To keep it always"
    return f"To stop it after {hours_text(keep_hours)}" if keep_hours else "To stop it at once"


def _waiting(stop: StopCost) -> str:
    if stop.waiting in (None, "nobody"):
        return ", while nobody waits" if stop.waiting else ""
    lost = f", and {say.usd(stop.context_usd)} of context" if stop.context_usd else ""
    return f", while an {stop.waiting} waits at {say.rate(stop.waiting_usd_per_hour)} an hour{lost}"


def _option(option: OptionValue) -> tuple[str, ...]:
    likely = "unknown" if option.probability is None else f"{100 * option.probability:.0f} %"
    worth = _span(*map(say.usd, option.expected_usd)) if option.expected_usd else "unknown"
    return option.name, _span(*map(say.usd, option.usd)), likely, worth, option.note


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
