"""What a report says of timing: how each side was called, and a GPU's clocks and power meanwhile."""

from collections.abc import Iterator, Sequence

from loop.model.measurement import SideSensors
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.report import format as say


def how_called(output: MeasureOutput) -> Iterator[str]:
    """Lines on sides, empty calls, ratios that hang on the way of calling, and ratios to `torch.compile`."""
    if output.called:
        yield "called: " + "; ".join(f"{side}: {way}" for side, way in output.called.items())
    if output.empty_us:
        yield "an empty call: " + ", ".join(f"{way} {say.latency(us)}" for way, us in output.empty_us.items())
    for variant, both in output.both_ways.items():
        yield f"{variant}: {both}"
    for one in output.compiled:
        ratio = say.ratio(one.ratio, one.interval)
        yield f"{one.variant} on {one.workload.name}: {ratio} of torch.compile of the baseline"


def sensor_lines(finished: Sequence[Finished], baseline: str) -> tuple[str, ...]:
    """One line for each side that was timed on a GPU; what its driver did not tell is said to be unknown."""
    sides = [one for output in outputs_of(finished, MeasureOutput) for one in output.sensors]
    return tuple(f"{baseline if one.side == 'baseline' else one.side}: {', '.join(_parts(one))}" for one in sides)


def _parts(one: SideSensors) -> Iterator[str]:
    yield _clock(one)
    yield "power unknown" if one.power_w is None else f"{one.power_w:.0f} W"
    if one.temperature_c is not None:
        yield f"{one.temperature_c} °C at most"
    yield _throttled(one)


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
