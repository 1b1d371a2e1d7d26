"""Keep an idle GPU, or stop it and start again? Both sides in money.

Keeping costs rate x idle hours. Stopping costs restart hours x (rate + rate of whoever waits) + lost context.
Break-even hours = stop cost / rate; with nobody waiting and no context lost that is the restart time itself.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from loop.base.stats import median
from loop.model.decision import End, Estimate, IdleSeen, KeepOrStop, Policy, Restart, StopCost, Waiting, hours_text
from loop.model.index import PatternRun, SessionRow
from loop.model.money import RateCard
from loop.model.record import DeviceName, Finished, latest_attempts

ENVIRONMENT = "environment-validation"
GOOD = ("verify", "measure")
"""The steps that a first good measurement takes, by id, in whichever pattern they are."""
UNCHECKED = ("the check of the environment",)
RECENT = 10
"""Restarts that a range is taken from; older ones say little of today's machine."""
GAPS = 20
"""Gaps between sessions that are looked back on."""
ENOUGH = 5
"""Fewer gaps say nothing of the next."""
ESTIMATES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the expected idle time at which the decision is shown."""


def decide(idle_hours: float, gpu_usd_per_hour: float, stop: StopCost) -> KeepOrStop:
    """Both sides, the break-even and the decision. `gpu_usd_per_hour` is above 0."""
    middle = (stop.low_usd + stop.high_usd) / 2
    low, high = (_end(idle_hours, gpu_usd_per_hour, usd) for usd in (stop.low_usd, stop.high_usd))
    around = idle_hours or middle / gpu_usd_per_hour
    hours = sorted({around * times for times in ESTIMATES} | {idle_hours})
    return KeepOrStop(
        idle_hours=idle_hours,
        gpu_usd_per_hour=gpu_usd_per_hour,
        idle_usd=idle_hours * gpu_usd_per_hour,
        stop_usd=middle,
        break_even_hours=middle / gpu_usd_per_hour,
        low=low,
        high=high,
        decision=low.decision if low.decision == high.decision else "it depends",
        estimates=tuple(_estimate(each, gpu_usd_per_hour, stop) for each in hours),
    )


def _end(idle_hours: float, rate: float, stop_usd: float) -> End:
    """A cent is no reason: equal sides, within rounding, mean to keep."""
    dearer = idle_hours * rate > stop_usd * (1 + 1e-9)
    return End(stop_usd=stop_usd, break_even_hours=stop_usd / rate, decision="stop" if dearer else "keep")


def _estimate(hours: float, rate: float, stop: StopCost) -> Estimate:
    ends = [_end(hours, rate, usd).decision for usd in (stop.low_usd, stop.high_usd)]
    decision = ends[0] if ends[0] == ends[1] else "it depends"
    return Estimate(idle_hours=hours, idle_usd=hours * rate, decision=decision)


def agrees(decided: str, found: KeepOrStop) -> str:
    """What the money says of a decision that was taken: whether it agrees, and what the other side would cost."""
    low, high = found.low, found.high
    stop, even = f"${low.stop_usd:.2f}", f"{low.break_even_hours:.1f}"
    if low.stop_usd != high.stop_usd:
        stop, even = f"{stop} to ${high.stop_usd:.2f}", f"{even} to {high.break_even_hours:.1f}"
    both = f"idle ${found.idle_usd:.2f}, stop {stop}, break-even {even} h"
    if found.decision == "it depends":
        return f"{decided}: it depends on what a stop costs ({both})"
    return f"{decided}: the money {'agrees' if found.decision == decided else f'says {found.decision}'} ({both})"


def stop_cost(
    restart: Restart, gpu_usd_per_hour: float, waiting: Waiting, waiting_usd_per_hour: float, context_usd: float
) -> StopCost:
    """A stop by its restart: minutes times the rates of the GPU and of whoever waits, and what is lost besides."""
    per_minute = (gpu_usd_per_hour + waiting_usd_per_hour) / 60
    return StopCost(
        low_usd=restart.low_minutes * per_minute + context_usd,
        high_usd=restart.high_minutes * per_minute + context_usd,
        source=_source(restart),
        waiting=waiting,
        waiting_usd_per_hour=waiting_usd_per_hour,
        context_usd=context_usd,
        restart=restart,
    )


def _source(restart: Restart) -> str:
    low, high = f"{restart.low_minutes:.1f}", f"{restart.high_minutes:.1f}"
    minutes = f"{low} min" if low == high else f"{low} to {high} min"
    if restart.device is None:
        return f"a restart of {minutes}, as given"
    count = len(restart.sessions)
    where = "a GPU" if restart.device == "cuda" else "a processor: a GPU's restart was not measured"
    boot = f", {restart.boot_minutes:g} min of boot as given" if restart.boot_minutes else ", without boot"
    without = f", without {' and '.join(restart.missing)}" if restart.missing else ""
    return f"a restart of {minutes}, measured in {count} cold session{'s' * (count > 1)} on {where}{boot}{without}"


def restart_of(rows: Iterable[SessionRow], device: DeviceName, boot_minutes: float = 0.0) -> Restart | None:
    """The restart as the last cold sessions on a device, and the same GPU, measured it; None where there was none.

    A session is cold where a compiler ran and something was measured: then its environment check, its build, its
    verification and its measurement are what a stopped machine costs again.
    """
    there = [row for row in rows if row.device == device and not row.recorded]
    cold = [row for row in there if restart_s(row) is not None]
    if not cold:
        return None
    cold = [row for row in cold if row.environment.gpu == cold[-1].environment.gpu][-RECENT:]
    minutes = [(restart_s(row) or 0.0) / 60 + boot_minutes for row in cold]
    unchecked = not any(run.pattern == ENVIRONMENT for row in cold for run in row.runs)
    return Restart(
        low_minutes=min(minutes),
        high_minutes=max(minutes),
        boot_minutes=boot_minutes,
        device=device,
        sessions=tuple(row.id for row in cold),
        missing=UNCHECKED if unchecked else (),
    )


def restart_s(row: SessionRow) -> float | None:
    """Seconds from an empty machine to the first good measurement; None where the session did not go that way."""
    builds = [run.seconds for run in row.runs if run.built and run.status == "passed"]
    good = [_first_s(row, step) for step in GOOD]
    if not builds or None in good:
        return None
    return _environment_s(row.runs) + builds[0] + sum(seconds or 0.0 for seconds in good)


def _environment_s(runs: Iterable[PatternRun]) -> float:
    return next((run.seconds for run in runs if run.pattern == ENVIRONMENT), 0.0)


def _first_s(row: SessionRow, step: str) -> float | None:
    return next((one.seconds for one in row.steps if one.step == step and one.status == "passed"), None)


def gaps_hours(rows: Sequence[SessionRow], device: DeviceName) -> tuple[float, ...]:
    """Hours between the end of a session on a device and the beginning of the next one there."""
    there = [row for row in rows if row.device == device and row.started is not None and not row.recorded]
    gaps = [_gap_hours(one, other) for one, other in itertools.pairwise(there)]
    return tuple(hours for hours in gaps if hours > 0)[-GAPS:]


def _gap_hours(one: SessionRow, other: SessionRow) -> float:
    if one.started is None or other.started is None:
        return 0.0
    return ((other.started - one.started).total_seconds() - one.seconds) / 3600


def idle_seen(gaps: Sequence[float]) -> IdleSeen | None:
    """Gaps in a few figures; None without any."""
    if not gaps:
        return None
    return IdleSeen(median_hours=median(gaps), low_hours=min(gaps), high_hours=max(gaps), gaps=len(gaps))


def policies(gaps: Sequence[float], gpu_usd_per_hour: float, stop_usd: float) -> tuple[Policy, ...]:
    """What stopping at once, never, or after the break-even time would have cost in these gaps.

    Nobody knows how long a gap will be. Whoever stops after the break-even time pays at most twice what
    foresight would (to rent or to buy: Karlin, Manasse, Rudolph and Sleator 1988, "Competitive snoopy caching");
    gaps that were seen may show that one of the other two is cheaper. None with fewer than `ENOUGH` gaps.
    """
    if len(gaps) < ENOUGH:
        return ()
    after = (0.0, stop_usd / gpu_usd_per_hour, None)
    made = [
        Policy(keep_hours=hours, usd_per_gap=_mean_usd(gaps, gpu_usd_per_hour, stop_usd, hours)) for hours in after
    ]
    return tuple(sorted(made, key=lambda one: one.usd_per_gap))


def _mean_usd(gaps: Sequence[float], rate: float, stop_usd: float, keep_hours: float | None) -> float:
    limit = math.inf if keep_hours is None else keep_hours
    return fmean(rate * min(hours, limit) + (stop_usd if hours > limit else 0.0) for hours in gaps)


def advice(break_even: tuple[float, float], chosen: Sequence[Policy]) -> str:
    """What to do while nobody knows how long the GPU will stand, in a sentence."""
    low, high = (hours_text(hours) for hours in break_even)
    within = low if low == high else f"{low} to {high}"
    if not chosen or chosen[0].keep_hours:
        return f"Keep the GPU for {within} of idling, then stop it: that costs at most twice what foresight would."
    best = "Stop it at once" if chosen[0].keep_hours == 0 else "Keep it"
    return f"{best}: in the gaps seen so far that is the cheapest (break-even {within})."


def sentence(found: KeepOrStop) -> str:
    """Both sides, the break-even and the decision, in a sentence."""
    both = f"idle ${found.idle_usd:.2f} against ${found.stop_usd:.2f} for a stop"
    even = f"break-even {hours_text(found.break_even_hours)}"
    if found.decision == "it depends":
        ends = f"${found.low.stop_usd:.2f} and ${found.high.stop_usd:.2f}"
        return f"It depends: idle ${found.idle_usd:.2f} lies between what a stop may cost, {ends} ({even})."
    return f"{found.decision.capitalize()} it: {both} ({even})."


def who_waits(card: RateCard, waiting: Waiting | None) -> tuple[Waiting, float]:
    """Who waits for a restart, and their dollars an hour; None: whoever the card names.

    Raises ValueError where the card has no price for them.
    """
    named = card.find(card.waiting)
    who: Waiting = waiting or ("agent" if named is not None and named.resource == "ai" else "engineer")
    if who == "nobody":
        return who, 0.0
    resource = "ai" if who == "agent" else "engineer"
    first = (named, card.find(card.ai) if card.ai else None, *card.rates)
    rate = next((rate for rate in first if rate is not None and rate.resource == resource), None)
    if rate is None:
        raise ValueError(f"the rate card has no price for an {who}")
    return who, rate.usd_per_hour


def own_restart_s(finished: Sequence[Finished]) -> float | None:
    """The same of a session that is under way: seconds from an empty machine to its first good measurement."""
    steps = latest_attempts(finished)
    built = [step for step in steps if step.action == "kernel.build" and step.status == "passed"]
    if not built or not _compiled_all(built[0]):
        return None
    good = [_first_of(steps, f"kernel.{step}") for step in GOOD]
    if None in good:
        return None
    before = {ENVIRONMENT, built[0].pattern}
    return sum(s.seconds for s in steps if s.pattern in before) + sum(seconds or 0.0 for seconds in good)


def _compiled_all(step: Finished) -> bool:
    builds = step.output.get("builds") or ()
    return bool(builds) and not any(build.get("cached") for build in builds)


def _first_of(steps: Iterable[Finished], action: str) -> float | None:
    return next((step.seconds for step in steps if step.action == action and step.status == "passed"), None)


def checked_environment(finished: Iterable[Finished]) -> bool:
    """Whether a session went through the check of its environment."""
    return any(step.pattern == ENVIRONMENT and step.status == "passed" for step in finished)
