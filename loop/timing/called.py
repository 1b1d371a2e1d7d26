"""How each side of a measurement was called, and what a call takes that does nothing."""

from collections.abc import Iterator

from loop.model.output import MeasureOutput
from loop.report import format as say


def how_called(output: MeasureOutput) -> Iterator[str]:
    """A line on the sides, one on empty calls, one a variant whose ratio hangs on the way of calling it."""
    if output.called:
        yield "called: " + "; ".join(f"{side}: {way}" for side, way in output.called.items())
    if output.empty_us:
        yield "an empty call: " + ", ".join(f"{way} {say.latency(us)}" for way, us in output.empty_us.items())
    for variant, both in output.both_ways.items():
        yield f"{variant}: {both}"
