"""Ratios, their intervals, and verdicts by interval."""

import itertools
import math
from collections.abc import Sequence

import pytest

from loop.base.stats import CONFIDENCE, t_quantile
from loop.model.measurement import Against, DeviceReading, Measurement, Segment
from loop.timing.against_baseline import sensed_clocks
from loop.timing.samples import Pair, Timings, log_ratios
from loop.timing.verdicts import by_interval, confidence, measure_pair
from loop.workers.bench import Side
from tests.makers import make_measurement, make_workload

WORKLOAD = make_workload("w")


def make_segment(side: str, round_: int, *seconds: float, workload: str = "w") -> Segment:
    """Consecutive timings of one side."""
    return Segment(side=side, workload=workload, round=round_, calls=1, seconds=seconds)


def make_rounds(*ratios: float) -> list[Segment]:
    """Rounds in which the candidate takes 1 ms, and the reference `ratio` times as long."""
    rounds = [(make_segment("ref", n, ratio), make_segment("new", n, 1.0)) for n, ratio in enumerate(ratios)]
    return [segment for pair in rounds for segment in pair]


def measure(
    segments: Sequence[Segment],
    *,
    candidate: str = "new",
    against: Against = "baseline",
    own_clock: bool = False,
    flops: float | None = None,
    confidence: float = CONFIDENCE,
) -> Measurement:
    """The measurement of these samples."""
    side = Side(candidate, {"kind": "c_abi"}, ("float32",), deterministic=True, build_id=None)
    timings = Timings(list(segments))
    timings.self_timed_sides = {candidate} if own_clock else set()
    pair = Pair(side, "ref", against)
    return measure_pair(timings, pair, WORKLOAD, (flops, None), confidence)


def test_a_measurement_is_the_mean_over_rounds_with_its_interval() -> None:
    """Ratio 2 from rounds of 1.98 and its mirror; the interval is Student's t on the logs."""
    row = measure(make_rounds(1.98, 4 / 1.98))
    half = t_quantile(0.995, 1) * math.log(2 / 1.98)
    assert 2 == row.rounds
    assert pytest.approx(2.0) == row.ratio
    assert pytest.approx((2 * math.exp(-half), 2 * math.exp(half))) == row.interval
    assert not row.ranged


BUSY_LAPTOP = (1.49, 1.25, 1.22, 1.24, 1.26, 1.21, 12.42, 1.14, 1.28)
"""Nine rounds of a kernel that is 1.24 times as fast, while two other programs ran."""


@pytest.mark.parametrize("outlier", [12.42, 0.05, 1e6])
@pytest.mark.parametrize("place", [0, 4, 8])
def test_one_outlier_takes_no_verdict_away(outlier: float, place: int) -> None:
    """An outlier of any size, on any side and in any round leaves the verdict."""
    ratios = [ratio for ratio in BUSY_LAPTOP if ratio != 12.42]
    ratios.insert(place, outlier)
    row = measure(make_rounds(*ratios))
    assert pytest.approx(1.24, rel=0.03) == row.ratio
    assert ("faster", False) == (by_interval(row).verdict, row.ranged)
    assert row.interval[1] < 1.2 * row.interval[0] * 1.2
    assert row.candidate_us == pytest.approx(1e6, rel=1e-9)
    assert row.reference_us == pytest.approx(1.24e6, rel=0.05)


def test_three_rounds_that_say_nothing_show_what_they_were() -> None:
    """The verdict has the range instead of an absurd interval, and says to measure more."""
    verdict = by_interval(row := measure(make_rounds(1.14, 12.42, 1.28)))
    assert (pytest.approx(1.28), (pytest.approx(1.14), pytest.approx(12.42))) == (row.ratio, row.interval)
    assert "inconclusive" == verdict.verdict
    reason = "3 rounds are too few for an interval, they gave 1.14x to 12.42x: measure more"
    assert reason == verdict.reason
    assert "faster" == by_interval(measure(make_rounds(2.0, 2.02, 1.99))).verdict


def test_more_comparisons_ask_for_more_confidence() -> None:
    """All of a session's together are false in one of a hundred sessions; one alone is judged as ever."""
    assert [0.99, 0.99, 0.995, 0.999] == [pytest.approx(confidence(n)) for n in (1, 2, 4, 20)]
    rounds = make_rounds(1.04, 1.05, 1.06, 1.045, 1.055)
    levels = (confidence(1), confidence(100))
    assert ["faster", "inconclusive"] == [by_interval(measure(rounds, confidence=p)).verdict for p in levels]


def waits(segments: Sequence[Segment], side: str, share: float, *, rounds: Sequence[int]) -> list[Segment]:
    """The same segments; in some rounds one side waited this share of its time."""
    return [
        s.model_copy(
            update={"waited": tuple(x * share * (s.side == side and s.round in rounds) for x in s.seconds)}
        )
        for s in segments
    ]


def test_rounds_that_were_disturbed_on_one_side_do_not_count() -> None:
    """Rounds with waits or a throttled GPU are left out; if most are, there is no verdict."""
    segments = make_rounds(2.0, 2.0, 2.0, 2.0)
    assert 2 == len(log_ratios(waits(segments, "ref", 0.5, rounds=[1, 2]), "ref", "new"))
    alike = [s.model_copy(update={"waited": tuple(x / 2 for x in s.seconds)}) for s in segments]
    assert 4 == len(log_ratios(alike, "ref", "new"))
    row = measure(waits(segments, "new", 0.5, rounds=[0, 1]))
    assert (2, None) == (row.rounds, row.held_back)
    row = measure(with_heat(make_rounds(9.0, 2.0, 2.0, 2.0, 2.0), 1))
    assert (4, None, "faster") == (row.rounds, row.held_back, by_interval(row).verdict)
    row = measure(with_heat(make_rounds(9.0, 9.0, 9.0, 2.0, 2.0), 3))
    assert (2, "inconclusive") == (row.rounds, by_interval(row).verdict)
    assert by_interval(row).reason.startswith("the reference was held back in 3 of 5 rounds: ")


@pytest.mark.parametrize(
    ("expected", "low", "high"),
    [
        ("faster", 1.011, 1.9),
        ("faster", 1.5, 1.6),
        ("inconclusive", 1.009, 1.5),
        ("inconclusive", 0.9, 1.2),
        ("slower", 0.5, 0.989),
        ("inconclusive", 0.6, 0.995),
        ("same", 0.985, 1.015),
        ("same", 1.0, 1.0),
        ("same", 1.001, 1.009),
        ("inconclusive", 0.97, 1.01),
        ("inconclusive", 0.99, 1.03),
        ("inconclusive", 1.5, 15.1),
        ("inconclusive", 0.02, 0.5),
    ],
)
def test_a_verdict_needs_the_whole_interval(expected: str, low: float, high: float) -> None:
    """It has to lie beyond 1 % for a difference, and within 2 % for `same`; else it is inconclusive."""
    row = make_measurement(ratio=math.sqrt(low * high), interval=(low, high))
    assert expected == by_interval(row).verdict


def with_heat(segments: Sequence[Segment], rounds: int) -> list[Segment]:
    """The same segments with sensor readings: in the first rounds the reference was throttled by heat."""
    hot, cool = DeviceReading(throttle=("heat",)), DeviceReading()
    held = [segment.side == "ref" and segment.round < rounds for segment in segments]
    readings = [(hot, hot) if is_held else (cool, cool) for is_held in held]
    return [s.model_copy(update={"sensors": r}) for s, r in zip(segments, readings, strict=True)]


@pytest.mark.parametrize("rounds", [(0.0033, 0.0029), (0.0041, 0.0030, 0.0022), (0.02, 0.0195)])
def test_what_is_slower_by_far_is_slower_after_a_few_rounds(rounds: Sequence[float]) -> None:
    """Their scatter does not matter, because no disturbance makes each round so slow."""
    assert "slower" == by_interval(measure(make_rounds(*rounds))).verdict


def test_readings_become_a_line_of_each_side() -> None:
    """Least, median and most of its clocks; a reason counts once a segment."""
    readings = [DeviceReading(sm_clock_mhz=1000 + n, throttle=("heat",) if n < 3 else ()) for n in range(5)]
    pairs = itertools.pairwise(readings)
    segments = [
        Segment(side="small", workload="w", round=0, calls=1, seconds=(1.0,), sensors=pair) for pair in pairs
    ]
    (sensors,) = sensed_clocks([*segments, segments[0].model_copy(update={"side": "other", "sensors": None})])
    assert ("small", 4, (1000, 1002, 1004), {"heat": 3}) == (
        sensors.side, sensors.segments, sensors.sm_clock_mhz, sensors.throttled,
    )  # fmt: skip
