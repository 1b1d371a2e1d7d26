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
    sides = []
    for name in dict.fromkeys(segment.side for segment in segments if segment.sensors):
        own = [segment.sensors for segment in segments if segment.side == name and segment.sensors]
        clocks = sorted(r.sm_clock_mhz for readings in own for r in readings if r.sm_clock_mhz is not None)
        reasons = Counter(word for readings in own for word in {word for r in readings for word in r.throttle})
        sides.append(
            SideSensors(
                side=name,
                segments=len(own),
                sm_clock_mhz=(clocks[0], round(median(clocks)), clocks[-1]) if clocks else None,
                throttled=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            )
        )
    return tuple(sides)


def sensor_lines(finished: Sequence[Finished], baseline: str) -> tuple[str, ...]:
    """One line for each side that was timed on a GPU: `plain: 1980 MHz (1755 to 1980), no throttling told`."""
    lines = []
    for sensors in (sensors for output in outputs_of(finished, MeasureOutput) for sensors in output.sensors):
        clock, throttled = "clock unknown", "no throttling told"
        if sensors.sm_clock_mhz is not None:
            least, middle, most = sensors.sm_clock_mhz
            clock = f"{middle} MHz" if least == most else f"{middle} MHz ({least} to {most})"
        if sensors.throttled:
            reasons = say.listed([f"{reason} in {number}" for reason, number in sensors.throttled.items()])
            throttled = f"held back: {reasons} of {say.count(sensors.segments, 'segment')}"
        name = baseline if sensors.side == "baseline" else sensors.side
        lines.append(f"{name}: {clock}, {throttled}")
    return tuple(lines)
