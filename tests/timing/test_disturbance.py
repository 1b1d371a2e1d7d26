"""Which samples and rounds count: by how long they waited, never by how long they took."""

import pytest

from loop.model.measurement import Segment
from loop.timing.disturbance import counted, drop, log_time, said, waiting


def make_segment(seconds: tuple[float, ...], waited: tuple[float, ...] = (), side: str = "new") -> Segment:
    """Timings of one side with the time that each waited."""
    return Segment(side=side, workload="w", round=0, calls=1, seconds=seconds, waited=waited)


def seconds(*segments: Segment) -> list[list[float]]:
    """The samples that count."""
    return [[one.seconds for one in group] for group in counted(segments)]


def test_samples_that_waited_are_left_out() -> None:
    """The long ones here, but because something else ran: a long sample that did not wait stays."""
    one = make_segment((1.0, 9.0, 1.0, 7.0, 1.1), (0.0, 8.0, 0.001, 0.0, 0.0))
    assert [[1.0, 1.0, 7.0, 1.1]] == seconds(one)


def test_a_segment_that_was_spoilt_leaves_the_other_to_its_side() -> None:
    """One slice of another program can take a whole segment; the side's other one is sound."""
    spoilt = make_segment((8.0, 9.0, 7.0), (7.0, 8.0, 6.0))
    sound = make_segment((1.0, 1.1, 0.9, 5.0), (0.0, 0.0, 0.0, 4.0))
    assert [[1.0, 1.1, 0.9]] == seconds(spoilt, sound)
    assert pytest.approx(0.0) == log_time([spoilt, sound])


def test_clean_samples_of_two_segments_count_together_where_each_has_few() -> None:
    """Two of one and one of the other make a median."""
    few = make_segment((1.0, 1.1, 7.0), (0.0, 0.0, 6.0))
    fewer = make_segment((8.0, 9.0, 1.2), (7.0, 8.0, 0.0))
    assert [[1.0, 1.1, 1.2]] == seconds(few, fewer)


def test_where_too_few_are_clean_the_least_disturbed_count() -> None:
    """As they were measured: no wait is subtracted, for a variant could make its own threads wait."""
    assert [[3.0, 4.0, 2.0]] == seconds(make_segment((2.0, 3.0, 4.0, 5.0), (1.0, 0.0, 1.0, 4.0)))


def test_what_tells_nothing_counts_as_it_is() -> None:
    """Sessions from before waits were read, and GPUs; both turns of a side, however few samples they have."""
    segment = make_segment((1.0, 2.0))
    assert ([[1.0, 2.0]] * 2, 0.0, "") == (seconds(segment, segment), waiting([segment]), said([segment]))


@pytest.mark.parametrize(("theirs", "ours", "side"), [(0.4, 0.3, "reference"), (0.0, 0.2, "candidate")])
def test_a_round_counts_when_its_sides_were_disturbed_alike(theirs: float, ours: float, side: str) -> None:
    """Both by half is fair, one side alone is not; it is named with its share."""
    one, other = (make_segment((1.0,) * 4, (share,) * 4) for share in (theirs, ours))
    found = drop([one], [other])
    assert found is not None
    assert side == found.side
    assert f"{theirs:.0%} of the reference's time, {ours:.0%} of the candidate's" in found.reason
    assert drop([one], [one]) is None


def test_a_round_in_which_hardly_anything_of_ours_ran_does_not_count() -> None:
    """Not even where it hit both sides alike: what is left is too little to compare."""
    one = make_segment((1.0,) * 4, (0.97,) * 4)
    assert drop([one], [one]) is not None


def test_it_is_said_when_many_samples_were_disturbed() -> None:
    """With their share; one in a hundred is no news."""
    assert "" == said([make_segment((1.0,) * 100, (0.5,) + (0.0,) * 99)])
    found = said([make_segment((1.0,) * 4, (0.5, 0.5, 0.0, 0.0))])
    assert "other programs took the core during 50% of the samples: those were left out where possible" == found
