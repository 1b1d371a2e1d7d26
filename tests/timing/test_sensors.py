"""Clocks and power of each side, from the readings around its segments; unknown is never zero."""

from typing import Any

from loop.model.measurement import DeviceReading, Segment, SideSensors
from loop.timing.sensors import sensed


def segment(before: dict[str, Any] | None = None, after: dict[str, Any] | None = None, **fields: Any) -> Segment:
    """A segment of `small` on `w` with 10 us a call, and these readings."""
    readings = None
    if before is not None:
        readings = (DeviceReading(**before), DeviceReading(**(after or {})))
    base = {"side": "small", "workload": "w", "round": 0, "calls": 1, "seconds": (10e-6,)}
    return Segment.model_validate({**base, "sensors": readings, **fields})


def only(*segments: Segment) -> SideSensors:
    """The sensors of the only side."""
    (side,) = sensed(segments)
    return side


def test_readings_of_a_side_are_summed_up() -> None:
    """The least, the median and the most clock; of the memory the median; the hottest; the mean power."""
    side = only(
        segment({"sm_clock_mhz": 1755, "temperature_c": 40, "power_w": 100.0}, {"sm_clock_mhz": 1980}),
        segment({"sm_clock_mhz": 1980, "power_w": 300.0}, {"temperature_c": 55, "memory_clock_mhz": 2619}),
    )
    assert ((1755, 1980, 1980), 2619, 55) == (side.sm_clock_mhz, side.memory_clock_mhz, side.temperature_c)
    assert 200.0 == side.power_w
    silent = only(segment({}, {}))
    assert {None} == {silent.power_w, silent.sm_clock_mhz, silent.memory_clock_mhz, silent.temperature_c}


def test_throttling_counts_segments() -> None:
    """Once a segment, whether it was there before or after; the most frequent first."""
    hot, capped = {"throttle": ("heat",)}, {"throttle": ("power cap", "heat")}
    side = only(segment(hot, hot), segment({}, capped), segment({}, {}))
    assert [("heat", 2), ("power cap", 1)] == list(side.throttled.items())
    assert 3 == side.segments


def test_sides_are_told_apart_and_a_cpu_has_none() -> None:
    """In the order in which they were timed."""
    segments = [segment({}, side="baseline"), segment({}), segment({}, side="baseline")]
    assert ["baseline", "small"] == [side.side for side in sensed(segments)]
    assert () == sensed([segment()])
