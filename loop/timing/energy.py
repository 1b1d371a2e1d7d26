"""What a GPU's sensors said while each side was timed: clocks, power, energy, and what held it back. Pure."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from loop.base.stats import geometric_mean, median
from loop.model.measurement import DeviceReading, Segment, SideSensors

Source = Literal["energy", "sensor"]
LEAST_STEPS = 0.5
"""The counter of energy moves in steps. It has to have moved in this share of a side's segments: where it steps
more rarely than they last, what a segment shows was mostly taken before it began, by another side."""


def sensed(segments: Sequence[Segment]) -> tuple[SideSensors, ...]:
    """The sensors of each side that has readings, in the order in which the sides were first timed."""
    read = [one for one in segments if one.sensors is not None]
    return tuple(
        _side(name, [one for one in read if one.side == name]) for name in dict.fromkeys(s.side for s in read)
    )


def taken(segments: Sequence[Segment]) -> tuple[float, float] | None:
    """Joules that the board took from the first reading to the last, whatever it did, and the seconds between.

    None where its driver has no counter of energy, or where the counter began anew.
    """
    readings = [reading for one in segments for reading in one.sensors or ()]
    told = [(one.at_s, one.energy_j) for one in readings if one.at_s is not None and one.energy_j is not None]
    if len(told) < 2:
        return None
    (began, before), (ended, after) = min(told), max(told)
    return (after - before, ended - began) if after >= before and ended > began else None


def _side(name: str, mine: Sequence[Segment]) -> SideSensors:
    readings = [reading for one in mine for reading in one.sensors or ()]
    clocks = sorted(one.sm_clock_mhz for one in readings if one.sm_clock_mhz is not None)
    memory = [one.memory_clock_mhz for one in readings if one.memory_clock_mhz is not None]
    power, by = _power(mine, readings)
    return SideSensors(
        side=name,
        segments=len(mine),
        sm_clock_mhz=(clocks[0], round(median(clocks)), clocks[-1]) if clocks else None,
        memory_clock_mhz=round(median(memory)) if memory else None,
        temperature_c=max((one.temperature_c for one in readings if one.temperature_c is not None), default=None),
        power_w=power,
        power_by=by,
        call_j=None if power is None else _joules(mine, power),
        throttled=_throttled(mine),
    )


def _power(mine: Sequence[Segment], readings: Sequence[DeviceReading]) -> tuple[float | None, Source | None]:
    """Watts, and by what: energy over time where its counter is fine enough, else the mean of the power sensor."""
    watts = _by_energy(mine)
    if watts is not None:
        return watts, "energy"
    told = [one.power_w for one in readings if one.power_w is not None]
    return (fmean(told), "sensor") if told else (None, None)


def _by_energy(mine: Sequence[Segment]) -> float | None:
    spans = [span for one in mine if (span := _span(one)) is not None]
    moved = sum(joules > 0 for joules, _ in spans)
    seconds = sum(time for _, time in spans)
    if len(spans) < len(mine) or moved < LEAST_STEPS * len(spans) or seconds <= 0:
        return None
    return sum(joules for joules, _ in spans) / seconds


def _span(one: Segment) -> tuple[float, float] | None:
    """Joules and seconds between the two readings of a segment; None where one of them does not tell."""
    before, after = one.sensors or (DeviceReading(), DeviceReading())
    if before.energy_j is None or after.energy_j is None or before.at_s is None or after.at_s is None:
        return None
    return after.energy_j - before.energy_j, after.at_s - before.at_s


def _joules(mine: Sequence[Segment], watts: float) -> tuple[float, float]:
    """Joules of one call of the workload that takes least time, and of the one that takes most."""
    times: dict[str, list[float]] = {}
    for one in mine:
        times.setdefault(one.workload, []).append(median(one.seconds))
    latencies = [geometric_mean(found) for found in times.values()]
    return watts * min(latencies), watts * max(latencies)


def _throttled(mine: Sequence[Segment]) -> dict[str, int]:
    """Reason to the segments in which it was there, before or after; the most frequent first."""
    reasons = Counter(
        reason for one in mine for reason in {word for reading in one.sensors or () for word in reading.throttle}
    )
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
