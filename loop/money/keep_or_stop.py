"""Keep an idle GPU, or stop it and start again? Both sides in money.

Keeping costs rate x idle hours. Stopping costs restart hours x (rate + rate of whoever waits).
Break-even hours = stop cost / rate; with nobody waiting that is the restart time itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from loop.base.errors import UsageError
from loop.base.stats import median, total_known
from loop.gate.model import BuildOutput
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.money import RateCard
from loop.model.output import read_output
from loop.model.record import Finished, latest_attempts
from loop.money.model import End, KeepOrStop, Restart, StopCost, Waiting, hours_text
from loop.report import format as say

ENVIRONMENT = "environment-validation"
GOOD = ("verify", "measure")
"""The steps that a first good measurement takes, by id, in whichever pattern they are."""
RECENT = 10
"""Restarts that a range is taken from; older ones say little of today's machine."""


def decide(idle_hours: float, gpu_usd_per_hour: float, stop: StopCost) -> KeepOrStop:
    """Both sides, the break-even and the decision. `gpu_usd_per_hour` is above 0."""
    middle, idle_usd = (stop.low_usd + stop.high_usd) / 2, idle_hours * gpu_usd_per_hour
    low, high = (
        End(
            stop_usd=usd,
            break_even_hours=usd / gpu_usd_per_hour,
            decision="stop" if idle_usd > usd * (1 + 1e-9) else "keep",  # Equal within rounding: keep.
        )
        for usd in (stop.low_usd, stop.high_usd)
    )
    return KeepOrStop(
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        idle_usd=idle_usd,
        stop_usd=middle,
        break_even_hours=middle / gpu_usd_per_hour,
        low=low,
        high=high,
        decision=low.decision if low.decision == high.decision else "it depends",
    )


def agrees(decided: str, weighed: KeepOrStop) -> str:
    """Whether the money agrees with a decision, with both sides: `keep: the money agrees (idle $1.00, ...)`."""
    low, high = weighed.low, weighed.high
    stop, even = f"${low.stop_usd:.2f}", f"{low.break_even_hours:.1f}"
    if low.stop_usd != high.stop_usd:
        stop, even = f"{stop} to ${high.stop_usd:.2f}", f"{even} to {high.break_even_hours:.1f}"
    says = "the money agrees" if weighed.decision == decided else f"the money says {weighed.decision}"
    return f"{decided}: {says} (idle ${weighed.idle_usd:.2f}, stop {stop}, break-even {even} h)"


def stop_cost(
    restart: Restart, gpu_usd_per_hour: float, waiting: Waiting, waiting_usd_per_hour: float
) -> StopCost:
    """A stop by its restart: minutes times the rates of the GPU and of whoever waits."""
    per_minute = (gpu_usd_per_hour + waiting_usd_per_hour) / 60
    low, high, count = f"{restart.low_minutes:.1f}", f"{restart.high_minutes:.1f}", len(restart.sessions)
    minutes = f"a restart of {low} min" if low == high else f"a restart of {low} to {high} min"
    where = "a GPU" if restart.device == "cuda" else "a processor: a GPU's restart was not measured"
    measured = f"measured in {count} cold session{'s' * (count > 1)} on {where}, without boot"
    return StopCost(
        low_usd=restart.low_minutes * per_minute,
        high_usd=restart.high_minutes * per_minute,
        source=f"{minutes}, {measured if restart.device else 'as given'}",
        waiting=waiting,
        waiting_usd_per_hour=waiting_usd_per_hour,
        restart=restart,
    )


def who_waits(card: RateCard, waiting: Waiting | None) -> tuple[Waiting, float]:
    """Who waits for a restart, and their dollars an hour; None: whoever the card names, else nobody.

    Raises LoopError where the card has no price for them.
    """
    named = card.find(card.waiting)
    stated: Waiting = "nobody" if named is None else "agent" if named.resource == "ai" else "engineer"
    who = waiting or stated
    if who == "nobody":
        return who, 0.0
    resource = "ai" if who == "agent" else "engineer"
    first = (named, card.find(card.ai), *card.rates)
    rate = next((rate for rate in first if rate is not None and rate.resource == resource), None)
    if rate is None:
        raise UsageError(
            f"the rate card has no price for an {who}", hint="add one to rates.yaml, or let nobody wait"
        )
    return who, rate.usd_per_hour


def restart_of(
    rows: Iterable[SessionRow], device: Device, session: str = "", finished: Sequence[Finished] = ()
) -> Restart | None:
    """The restart as the last cold sessions on a device, and the same GPU, measured it; None where there was none.

    A cold session compiled and measured something: a stopped machine repeats its environment check, its build, its
    verification and its measurement. `session`, `finished`: the session under way, and its steps.
    """
    restarts = []
    for row in rows:
        if row.device == device and not row.recorded:
            built = next((run.seconds for run in row.runs if run.built and run.status == "passed"), None)
            environment = next((run.seconds for run in row.runs if run.pattern == ENVIRONMENT), 0.0)
            passed = [step for step in row.steps if step.status == "passed"]
            good = [next((step.seconds for step in passed if step.step == name), None) for name in GOOD]
            seconds = total_known([environment, built, *good])
            restarts += [(row, seconds)] if seconds is not None else []
    cold = [(row.id, s) for row, s in restarts if row.environment.gpu == restarts[-1][0].environment.gpu]
    own_s = own_restart_s(finished)
    cold = [*cold[-RECENT:], *([(session, own_s)] if own_s is not None else [])]
    if not cold:
        return None
    minutes = [seconds / 60 for _, seconds in cold]
    sessions = tuple(name for name, _ in cold)
    return Restart(low_minutes=min(minutes), high_minutes=max(minutes), device=device, sessions=sessions)


def own_restart_s(finished: Sequence[Finished]) -> float | None:
    """Seconds from an empty machine to the first good measurement in a session under way; None where not cold."""
    passed = [step for step in latest_attempts(finished) if step.status == "passed"]
    builds = next(((step, output) for step in passed if (output := read_output(step, BuildOutput))), None)
    if builds is None or not builds[1].builds or any(build.cached for build in builds[1].builds):
        return None
    before = sum(step.seconds for step in passed if step.pattern in (ENVIRONMENT, builds[0].pattern))
    good = [next((step.seconds for step in passed if step.action == f"kernel.{name}"), None) for name in GOOD]
    return total_known([before, *good])


def advice(break_even: tuple[float, float]) -> str:
    """What to do while nobody knows how long the GPU will stand, in a sentence.

    Whoever stops after the break-even time pays at most twice what foresight would (to rent or to buy: Karlin,
    Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching").
    """
    low, high = (hours_text(hours) for hours in break_even)
    within = low if low == high else f"{low} to {high}"
    return f"Keep the GPU for {within} of idling, then stop it: that costs at most twice what foresight would."


def sentence(weighed: KeepOrStop) -> str:
    """Both sides, the break-even and the decision, in a sentence."""
    both = f"idle ${weighed.idle_usd:.2f} against ${weighed.stop_usd:.2f} for a stop"
    even = f"break-even {hours_text(weighed.break_even_hours)}"
    if weighed.decision == "it depends":
        ends = f"${weighed.low.stop_usd:.2f} and ${weighed.high.stop_usd:.2f}"
        return f"It depends: idle ${weighed.idle_usd:.2f} lies between what a stop may cost, {ends} ({even})."
    return f"{weighed.decision.capitalize()} it: {both} ({even})."


@dataclass(frozen=True)
class Leaving:
    """What to do with a machine whose work is done: the options with their dollars, and the decision."""

    decision: Literal["keep", "stop"]
    lines: tuple[str, ...]


def leave(
    rate: float, stop: StopCost | None, gap_hours: float | None, planned: tuple[str, float] | None
) -> Leaving:
    """Decide for a machine at `rate` dollars an hour. `gap_hours`: the usual time between two sessions.

    `planned`: until when the user needs it, and the hours until then: it is kept. If the gap or the cost of a
    restart is unknown, it is stopped, because only its own cost is known.
    """
    first = "no restart was measured, so its cost is unknown"
    if stop:
        low, high = say.usd(stop.low_usd), say.usd(stop.high_usd)
        first = f"{low if low == high else f'{low} to {high}'} for {stop.source}"
    lines = [f"A stop it now: {first}"]
    decision: Literal["keep", "stop"] = "stop"
    hours = planned[1] if planned else gap_hours
    if hours is not None:
        until = f"until {planned[0]}, as planned" if planned else "until the next session, as gaps were so far"
        lines.append(f"B keep it {until} ({hours_text(hours)}): {say.usd(hours * rate)}")
        weighed = decide(hours, rate, stop) if stop else None
        decision = "keep" if planned or (weighed and weighed.decision == "keep") else "stop"
        if planned and weighed:
            lines.append(f"  {agrees('keep', weighed)}")
    if stop:
        even = stop.high_usd / rate
        lines.append(f"C keep it for {hours_text(even)}, then stop it: at most {say.usd(2 * stop.high_usd)}")
    return Leaving(decision, tuple(lines))


def gap_hours(rows: Iterable[SessionRow]) -> float | None:
    """Hours between the end of a session and the beginning of the next, the median of the last; None for none."""
    timed = [(row.started.timestamp(), row.seconds) for row in rows if row.started is not None and row.seconds]
    recent = sorted(timed)[-RECENT - 1 :]
    gaps = [(later - begun - seconds) / 3600 for (begun, seconds), (later, _) in pairwise(recent)]
    return median([gap for gap in gaps if gap > 0]) if any(gap > 0 for gap in gaps) else None
