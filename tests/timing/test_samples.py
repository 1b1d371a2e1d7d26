"""Samples and rounds count by how long they waited, never by how long they took."""

import math

import pytest

from loop.model.measurement import DeviceReading, Segment
from loop.timing.doubts import _doubts_of_sides, explain_deferred_work
from loop.timing.samples import (
    Timings,
    charge_deferred_work,
    counted_samples,
    explain_gpu_slowdown,
    find_gpu_slowdown,
    is_unevenly_disturbed,
    log_time,
)


def make_segment(seconds: tuple[float, ...], waited: tuple[float, ...] = (), side: str = "new") -> Segment:
    """Timings of one side with the time that each waited."""
    return Segment(side=side, workload="w", round=0, calls=1, seconds=seconds, waited=waited)


def seconds(*segments: Segment) -> list[list[float]]:
    """The samples that count."""
    return [[sample.seconds for sample in group] for group in counted_samples(segments)]


def test_samples_that_waited_are_left_out() -> None:
    """Where few are clean the least disturbed count; slowing half of them slows no side."""
    waiting = make_segment((1.0, 9.0, 1.0, 7.0, 1.1), (0.0, 8.0, 0.001, 0.0, 0.0))
    assert [[1.0, 1.0, 7.0, 1.1]] == seconds(waiting)
    assert [[3.0, 4.0, 2.0]] == seconds(make_segment((2.0, 3.0, 4.0, 5.0), (1.0, 0.0, 1.0, 4.0)))
    quiet, half_slowed = make_segment((1.0,) * 8), make_segment((1.0,) * 4 + (1.3,) * 4)
    assert log_time([quiet, quiet]) == log_time([half_slowed, half_slowed]) == 0.0
    assert math.log(1.05) == pytest.approx(log_time([make_segment((1.05,) * 8)]))
    assert math.log(2.0) == pytest.approx(log_time([make_segment((2.0,))]))  # A slow call has one sample.


@pytest.mark.parametrize(
    ("theirs", "ours", "spoilt"), [(0.4, 0.3, True), (0.0, 0.2, True), (0.4, 0.4, False), (0.97, 0.97, True)]
)
def test_a_round_counts_when_its_sides_were_disturbed_alike(theirs: float, ours: float, *, spoilt: bool) -> None:
    """A round counts if both sides waited half the time, not if one did, or if one hardly ran."""
    reference, candidate = (make_segment((1.0,) * 4, (share,) * 4) for share in (theirs, ours))
    assert spoilt == is_unevenly_disturbed([reference], [candidate])


def make_spans(*clocks: int | None, throttle: tuple[str, ...] = ()) -> list[Segment]:
    """Segments that begin and end at one clock each; throttled, if at all, at the end of the last."""
    last = len(clocks) - 1
    ends = [
        (DeviceReading(sm_clock_mhz=clock), DeviceReading(sm_clock_mhz=clock, throttle=throttle * (n == last)))
        for n, clock in enumerate(clocks)
    ]
    return [Segment(side="s", workload="w", round=0, calls=1, seconds=(1.0,), sensors=pair) for pair in ends]


QUIET = make_spans(1980, 1980)
THROTTLED = make_spans(1980, 1980, throttle=("power cap",))


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_block_with_one_side_throttled_is_dropped(side: str) -> None:
    """A reading of one segment is enough; the message has the reason."""
    slowdown = find_gpu_slowdown(THROTTLED, QUIET) if side == "reference" else find_gpu_slowdown(QUIET, THROTTLED)
    assert slowdown is not None
    assert side == slowdown[0]
    assert f"the {side} was throttled (power cap)" in slowdown[1]


def test_clocks_more_than_one_per_cent_apart_drop_the_block() -> None:
    """The side with the lower clock is named, with both clocks."""
    expected = "median SM clocks differ by 1.5%: 1950 MHz for the reference, 1980 MHz for the candidate"
    assert ("reference", expected) == find_gpu_slowdown(make_spans(1950, 1950), QUIET)


def make_rounds(*readings: tuple[DeviceReading, DeviceReading]) -> list[Segment]:
    """One round for each pair: the reference is quiet, the candidate has these readings."""
    quiet = (DeviceReading(sm_clock_mhz=1980),) * 2
    pairs = [(n, side, r) for n, pair in enumerate(readings) for side, r in (("ref", quiet), ("new", pair))]
    return [Segment(side=side, workload="w", round=n, calls=1, seconds=(1.0,), sensors=r) for n, side, r in pairs]


def test_a_side_dropped_in_most_rounds_is_a_result() -> None:
    """If one side is dropped in more than half, the commonest reason is given."""
    quiet, hot, cap = (DeviceReading(sm_clock_mhz=1980, throttle=reasons) for reasons in ((), ("hot",), ("cap",)))
    explanation = explain_gpu_slowdown(
        make_rounds((hot, hot), (cap, cap), (quiet, cap), (quiet, quiet), (quiet, quiet)), "ref", "new"
    )
    expected = "the candidate was throttled (cap), the reference was not"
    assert f"the candidate was held back in 3 of 5 rounds: {expected}" == explanation


US = 1e-6


def make_call(side: str, call_s: float = 10 * US) -> Segment:
    """A segment of three samples of one length."""
    return Segment(side=side, workload="w", round=0, calls=1, seconds=(call_s,) * 3)


def test_work_that_was_left_is_added_to_every_sample() -> None:
    """Only the side that left work pays for it, and the amount is stored."""
    return_times_s = {("baseline", "w", 0): [4 * US] * 3, ("x", "w", 0): [106 * US] * 3}
    base, late = charge_deferred_work([make_call("baseline"), make_call("x")], return_times_s)
    assert (10 * US, 0.0) == (base.seconds[0], base.left_s)
    assert 110 * US == pytest.approx(late.seconds[0])
    assert 100 * US == pytest.approx(late.left_s)
    assert "" == explain_deferred_work([base])
    assert (
        "computes when its result is looked at: 10.0 us until a call returned, 100.0 us more"
        in explain_deferred_work([late])
    )


@pytest.mark.parametrize(
    ("proofs", "expected"),
    [
        ([], None),
        ([(1e-3, 1)], (1e-6, 1e-3)),
        ([(1e-3, 1), (2e-3, 1)], (1e-6, 1e-3)),
        ([(1e-3, 1), (2e-6, 1)], None),
        ([(15e-6, 1)], None),
        ([(15e-6, 100)], (1e-6, 15e-6)),
    ],
)
def test_a_right_result_vouches_for_calls_as_quick_as_its_own(
    proofs: list[tuple[float, int]], expected: tuple[float, float] | None
) -> None:
    """One quick checked call is enough, within the clock's error; an unchecked side is not doubted."""
    timings = Timings(segments=[make_segment((1e-6,) * 5)], judged_samples={("new", "w"): proofs})
    assert timings.unproven_times_s("new", "w") == (pytest.approx(expected) if expected else None)
    assert timings.unproven_times_s("new", "other") is None
    doubts = [doubt.reason for doubt in _doubts_of_sides(timings, "known_good", ["new"], {})]
    assert bool(expected) == any("nothing shows that it computes" in reason for reason in doubts)


@pytest.mark.parametrize(("waited", "accused"), [(0.0, True), (5e-7, False)], ids=["alone", "busy"])
def test_slow_proofs_accuse_nobody_on_a_busy_machine(waited: float, *, accused: bool) -> None:
    """Where other programs disturb the baseline too, slow calls are the machine's."""
    library = make_segment((1e-6,) * 5, (waited,) * 5, side="baseline")
    timings = Timings(segments=[library, make_segment((1e-6,) * 5)], judged_samples={("new", "w"): [(1e-3, 1)]})
    doubts = _doubts_of_sides(timings, "baseline", ["new"], {})
    assert accused == any(doubt.cause == "foresees" for doubt in doubts)
