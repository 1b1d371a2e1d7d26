"""Clocks, power and energy of each side, from the readings around its segments; unknown is never zero."""

from typing import Any

import pytest

from loop.model.measurement import DeviceReading, Segment, SideSensors
from loop.timing.energy import sensed


def segment(before: dict[str, Any] | None = None, after: dict[str, Any] | None = None, **fields: Any) -> Segment:
    """A segment of `cpu` on `w` with 10 us a call, and these readings."""
    readings = None
    if before is not None:
        readings = (DeviceReading(**before), DeviceReading(**(after or {})))
    base = {"side": "small", "workload": "w", "round": 0, "calls": 1, "seconds": (10e-6,)}
    return Segment.model_validate({**base, "sensors": readings, **fields})


def energy(joules: float, took_s: float, **fields: Any) -> Segment:
    """A segment in which the counter of energy moved by so much."""
    return segment(
        {"energy_j": 1000.0, "at_s": 5.0}, {"energy_j": 1000.0 + joules, "at_s": 5.0 + took_s}, **fields
    )


def one(*segments: Segment) -> SideSensors:
    """The sensors of the only side."""
    (found,) = sensed(segments)
    return found


def test_power_is_energy_over_time() -> None:
    """9 J in 0.04 s over all segments; a call of 10 us takes 2.25 mJ of it."""
    found = one(energy(6.0, 0.03), energy(3.0, 0.01))
    assert ("energy", pytest.approx(225.0)) == (found.power_by, found.power_w)
    assert found.call_j == pytest.approx((2.25e-3, 2.25e-3))


def test_energy_of_a_call_is_told_of_the_shortest_and_the_longest_workload() -> None:
    """By their times: a median a segment, their geometric mean."""
    slow = energy(2.0, 0.01, workload="large", seconds=(0.9e-3, 1e-3, 5e-3))
    found = one(energy(2.0, 0.01), slow)
    assert found.call_j == pytest.approx((2e-3, 200e-3))


@pytest.mark.parametrize(("steps", "expected"), [([0.0, 5.0, 5.0], "energy"), ([0.0, 0.0, 9.0], "sensor")])
def test_a_counter_that_steps_too_rarely_is_not_believed(steps: list[float], expected: str) -> None:
    """What it shows in one segment was taken in those before; the power sensor speaks then."""
    made = [energy(joules, 0.01) for joules in steps]
    told = [
        s.model_copy(update={"sensors": tuple(r.model_copy(update={"power_w": 300.0}) for r in s.sensors or ())})
        for s in made
    ]
    assert expected == one(*told).power_by


def test_the_power_sensor_speaks_where_energy_is_not_counted() -> None:
    """GPUs before Volta have no such counter: the mean of the readings."""
    found = one(segment({"power_w": 100.0}, {"power_w": 300.0}), segment({"power_w": 200.0}, {}))
    assert ("sensor", 200.0) == (found.power_by, found.power_w)


def test_what_nobody_tells_is_unknown() -> None:
    """Never zero."""
    found = one(segment({}, {}))
    assert (None,) * 6 == (
        *(found.power_w, found.power_by, found.call_j, found.sm_clock_mhz),
        *(found.memory_clock_mhz, found.temperature_c),
    )
    assert {} == found.throttled


def test_clocks_are_told_with_their_range() -> None:
    """The least, the median and the most of all readings; of the memory the median; the hottest."""
    found = one(
        segment({"sm_clock_mhz": 1755, "temperature_c": 40}, {"sm_clock_mhz": 1980, "memory_clock_mhz": 2619}),
        segment({"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1980, "temperature_c": 55}),
    )
    assert ((1755, 1980, 1980), 2619, 55) == (found.sm_clock_mhz, found.memory_clock_mhz, found.temperature_c)


def test_throttling_counts_segments() -> None:
    """Once a segment, whether it was there before or after; the most frequent first."""
    hot, capped = {"throttle": ("heat",)}, {"throttle": ("power cap", "heat")}
    found = one(segment(hot, hot), segment({}, capped), segment({}, {}))
    assert [("heat", 2), ("power cap", 1)] == list(found.throttled.items())
    assert 3 == found.segments


def test_sides_are_told_apart_and_a_cpu_has_none() -> None:
    """In the order in which they were timed."""
    assert ["baseline", "small"] == [
        one.side for one in sensed([segment({}, side="baseline"), segment({}), segment({}, side="baseline")])
    ]
    assert () == sensed([segment()])
