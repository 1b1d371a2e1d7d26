"""What a GPU's sensors said while each side was timed: clocks, power, and what held it back. Pure."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from loop.base.stats import median
from loop.model.measurement import Segment, SideSensors


def sensed(segments: Sequence[Segment]) -> tuple[SideSensors, ...]:
    """The sensors of each side that has readings, in the order in which the sides were first timed."""
    read = [segment for segment in segments if segment.sensors is not None]
    sides = dict.fromkeys(segment.side for segment in read)
    return tuple(_side(name, [segment for segment in read if segment.side == name]) for name in sides)


def _side(name: str, segments: Sequence[Segment]) -> SideSensors:
    readings = [reading for segment in segments for reading in segment.sensors or ()]
    clocks = sorted(reading.sm_clock_mhz for reading in readings if reading.sm_clock_mhz is not None)
    memory = [reading.memory_clock_mhz for reading in readings if reading.memory_clock_mhz is not None]
    watts = [reading.power_w for reading in readings if reading.power_w is not None]
    degrees = [reading.temperature_c for reading in readings if reading.temperature_c is not None]
    throttled = Counter(
        reason
        for segment in segments
        for reason in {word for reading in segment.sensors or () for word in reading.throttle}
    )
    return SideSensors(
        side=name,
        segments=len(segments),
        sm_clock_mhz=(clocks[0], round(median(clocks)), clocks[-1]) if clocks else None,
        memory_clock_mhz=round(median(memory)) if memory else None,
        temperature_c=max(degrees, default=None),
        power_w=fmean(watts) if watts else None,
        throttled=dict(sorted(throttled.items(), key=lambda item: (-item[1], item[0]))),
    )
