"""Keep an idle GPU, or stop it and start again? Both sides in money.

Keeping costs rate x idle hours. Stopping costs restart hours x (rate + rate of whoever waits).
Break-even hours = stop cost / rate; with nobody waiting that is the restart time itself.
"""

from collections.abc import Iterable, Sequence
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
from loop.money.model import KeepOrStop, StopCost, Waiting, hours_text
from loop.report import format as say

ENVIRONMENT = "environment-validation"
GOOD = ("verify", "measure")
"""The steps that a first good measurement takes, by id, in whichever pattern they are."""
RECENT = 10
"""Restarts that count; older ones say little of today's machine."""


def decide(idle_hours: float, gpu_usd_per_hour: float, stop: StopCost) -> KeepOrStop:
    """Both sides, the break-even and the decision. `gpu_usd_per_hour` is above 0."""
    idle_usd = idle_hours * gpu_usd_per_hour
    return KeepOrStop(
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        idle_usd=idle_usd,
        stop_usd=stop.usd,
        break_even_hours=stop.usd / gpu_usd_per_hour,
        decision="stop" if idle_usd > stop.usd * (1 + 1e-9) else "keep",  # Equal within rounding: keep.
    )


def stop_cost(
    minutes: float, source: str, gpu_usd_per_hour: float, waiting: Waiting, waiting_usd_per_hour: float
) -> StopCost:
    """A stop by the minutes of its restart, times the rates of the GPU and of whoever waits.

    `source`: where the minutes come from, in words.
    """
    return StopCost(
        usd=minutes / 60 * (gpu_usd_per_hour + waiting_usd_per_hour),
        source=f"a restart of {minutes:.1f} min, {source}",
        waiting=waiting,
        waiting_usd_per_hour=waiting_usd_per_hour,
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
    rows: Iterable[SessionRow], device: Device, finished: Sequence[Finished] = ()
) -> tuple[float, str] | None:
    """Minutes of a restart, the median of the last cold sessions on a device and the same GPU, and their source.

    A cold session compiled and measured something: a stopped machine repeats its environment check, its build, its
    verification and its measurement. `finished`: steps of the session under way. None where there was none.
    """
    restarts = []
    for row in rows:
        if row.device == device and not row.recorded:
            built = next((run.seconds for run in row.runs if run.built and run.status == "passed"), None)
            environment = next((run.seconds for run in row.runs if run.pattern == ENVIRONMENT), 0.0)
            passed = [step for step in row.steps if step.status == "passed"]
            good = [next((step.seconds for step in passed if step.step == name), None) for name in GOOD]
            seconds = total_known([environment, built, *good])
            restarts += [(row.environment.gpu, seconds)] if seconds is not None else []
    cold = [seconds for gpu, seconds in restarts if gpu == restarts[-1][0]][-RECENT:]
    own_s = own_restart_s(finished)
    cold += [own_s] if own_s is not None else []
    if not cold:
        return None
    where = "a GPU" if device == "cuda" else "a processor: a GPU's restart was not measured"
    count = say.count(len(cold), "cold session")
    return median(cold) / 60, f"measured in {count} on {where}, without boot"


def own_restart_s(finished: Sequence[Finished]) -> float | None:
    """Seconds from an empty machine to the first good measurement in a session under way; None where not cold."""
    passed = [step for step in latest_attempts(finished) if step.status == "passed"]
    builds = next(((step, output) for step in passed if (output := read_output(step, BuildOutput))), None)
    if builds is None or not builds[1].builds or any(build.cached for build in builds[1].builds):
        return None
    before = sum(step.seconds for step in passed if step.pattern in (ENVIRONMENT, builds[0].pattern))
    good = [next((step.seconds for step in passed if step.action == f"kernel.{name}"), None) for name in GOOD]
    return total_known([before, *good])


def advice(break_even_hours: float) -> str:
    """What to do while nobody knows how long the GPU will stand, in a sentence.

    Whoever stops after the break-even time pays at most twice what foresight would (to rent or to buy: Karlin,
    Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching").
    """
    within = hours_text(break_even_hours)
    return f"Keep the GPU for {within} of idling, then stop it: that costs at most twice what foresight would."


def sentence(weighed: KeepOrStop) -> str:
    """Both sides, the break-even and the decision, in a sentence."""
    both = f"idle ${weighed.idle_usd:.2f} against ${weighed.stop_usd:.2f} for a stop"
    return f"{weighed.decision.capitalize()} it: {both} (break-even {hours_text(weighed.break_even_hours)})."


def leave(
    rate: float, stop: StopCost | None, gap_hours: float | None, planned: tuple[str, float] | None
) -> tuple[Literal["keep", "stop"], list[str]]:
    """What to do with a machine at `rate` dollars an hour, and the options with their dollars, a line each.

    `gap_hours`: the usual time between two sessions. `planned`: until when the user needs it, and the hours until
    then: it is kept. If the gap or the cost of a restart is unknown, it is stopped, because only its own cost is
    known.
    """
    first = f"{say.usd(stop.usd)} for {stop.source}" if stop else "no restart was measured, so its cost is unknown"
    lines = [f"A stop it now: {first}"]
    decision: Literal["keep", "stop"] = "keep" if planned else "stop"
    hours = planned[1] if planned else gap_hours
    if hours is not None:
        until = f"until {planned[0]}, as planned" if planned else "until the next session, as gaps were so far"
        lines.append(f"B keep it {until} ({hours_text(hours)}): {say.usd(hours * rate)}")
        if stop and not planned:
            decision = decide(hours, rate, stop).decision
    if stop:
        lines.append(f"C keep it for {hours_text(stop.usd / rate)}, then stop it: at most {say.usd(2 * stop.usd)}")
    return decision, lines


def gap_hours(rows: Iterable[SessionRow]) -> float | None:
    """Hours between the end of a session and the beginning of the next, the median of the last; None for none."""
    timed = [(row.started.timestamp(), row.seconds) for row in rows if row.started is not None and row.seconds]
    recent = sorted(timed)[-RECENT - 1 :]
    gaps = [(later - begun - seconds) / 3600 for (begun, seconds), (later, _) in pairwise(recent)]
    return median([gap for gap in gaps if gap > 0]) if any(gap > 0 for gap in gaps) else None
