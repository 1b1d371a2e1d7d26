"""What handing a result over takes beyond a copy is work of the call."""

import pytest

from loop.model.measurement import Segment
from loop.timing.deferral import charged, defers

US = 1e-6


def make_segment(side: str, call_s: float = 10 * US) -> Segment:
    """A segment of three samples of one length."""
    return Segment(side=side, workload="w", round=0, calls=1, seconds=(call_s,) * 3)


def handed(**by_side: float) -> dict[tuple[str, str, int], list[float]]:
    """Seconds of handing over in round 0."""
    return {(side, "w", 0): [seconds] * 3 for side, seconds in by_side.items()}


def test_a_copy_like_the_baselines_costs_nothing() -> None:
    """A quarter more than the baseline's is still a copy."""
    segments = [make_segment("baseline"), make_segment("x")]
    assert segments == charged(segments, handed(baseline=4 * US, x=5 * US), 0)


def test_work_that_was_left_is_added_to_every_sample() -> None:
    """Only to the side that left it; and how much it was is kept."""
    base, late = charged([make_segment("baseline"), make_segment("x")], handed(baseline=4 * US, x=106 * US), 0)
    assert (10 * US, 0.0) == (base.seconds[0], base.left_s)
    assert 110 * US == pytest.approx(late.seconds[0])
    assert 100 * US == pytest.approx(late.left_s)
    assert "" == defers([base])
    assert "computes when its result is looked at: 10.0 us until a call returned, 100.0 us more" in defers([late])


def test_a_result_that_is_only_slow_to_copy_is_charged_and_not_accused() -> None:
    """As one that is laid out in another order."""
    _, strided = charged([make_segment("baseline"), make_segment("x")], handed(baseline=4 * US, x=26 * US), 0)
    assert 30 * US == pytest.approx(strided.seconds[0])
    assert "" == defers([strided])


def test_what_is_computed_in_its_place_is_never_charged() -> None:
    """A compiled variant hands nothing over."""
    segments = [make_segment("baseline"), make_segment("compiled")]
    assert segments == charged(segments, handed(baseline=4 * US), 0)
