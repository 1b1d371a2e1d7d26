"""What a report says of timing: how each side was called, and a GPU's clocks meanwhile."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loop.base.stats import median
from loop.model.measurement import Segment, SideSensors
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.report import format as say


def how_called(output: MeasureOutput) -> Iterator[str]:
    """How each side is called, and what empty calls take."""
    if output.called:
        yield "called: " + "; ".join(f"{side}: {way}" for side, way in output.called.items())
    if output.empty_us:
        yield "an empty call: " + ", ".join(f"{way} {say.latency(us)}" for way, us in output.empty_us.items())


def sensed(segments: Sequence[Segment]) -> tuple[SideSensors, ...]:
    """A GPU's clocks while each side was timed, in the order in which the sides were first timed."""
    found = []
    for name in dict.fromkeys(one.side for one in segments if one.sensors):
        mine = [one for one in segments if one.side == name and one.sensors]
        readings = [reading for one in mine for reading in one.sensors or ()]
        clocks = sorted(one.sm_clock_mhz for one in readings if one.sm_clock_mhz is not None)
        reasons = Counter(
            word for one in mine for word in {word for reading in one.sensors or () for word in reading.throttle}
        )
        found.append(
            SideSensors(
                side=name,
                segments=len(mine),
                sm_clock_mhz=(clocks[0], round(median(clocks)), clocks[-1]) if clocks else None,
                throttled=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            )
        )
    return tuple(found)


def sensor_lines(finished: Sequence[Finished], baseline: str) -> tuple[str, ...]:
    """One line for each side that was timed on a GPU; what its driver did not tell is said to be unknown."""
    sides = [one for output in outputs_of(finished, MeasureOutput) for one in output.sensors]
    return tuple(
        f"{baseline if one.side == 'baseline' else one.side}: {_clock(one)}, {_throttled(one)}" for one in sides
    )


def _clock(one: SideSensors) -> str:
    """`1980 MHz (1755 to 1980)`."""
    if one.sm_clock_mhz is None:
        return "clock unknown"
    least, middle, most = one.sm_clock_mhz
    return f"{middle} MHz" if least == most else f"{middle} MHz ({least} to {most})"


def _throttled(one: SideSensors) -> str:
    if not one.throttled:
        return "no throttling told"
    reasons = say.listed([f"{reason} in {number}" for reason, number in one.throttled.items()])
    return f"held back: {reasons} of {say.count(one.segments, 'segment')}"
