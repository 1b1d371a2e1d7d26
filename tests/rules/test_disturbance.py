"""Which samples and rounds count: by how long they waited, never by how long they took."""

import pytest

from loop.model.measurement import Segment
from loop.rules.disturbance import clean, drop, said, waiting


def make_segment(seconds: tuple[float, ...], waited: tuple[float, ...] = (), side: str = "new") -> Segment:
    """Timings of one side with the time that each waited."""
    return Segment(side=side, workload="w", round=0, calls=1, seconds=seconds, waited=waited)


def test_samples_that_waited_are_left_out() -> None:
    """The long ones here, but because something else ran: a long sample that did not wait stays."""
    found = clean(make_segment((1.0, 9.0, 1.0, 7.0, 1.1), (0.0, 8.0, 0.001, 0.0, 0.0)))
    assert (1.0, 1.0, 7.0, 1.1) == found


def test_where_too_few_are_clean_the_least_disturbed_count() -> None:
    """As they were measured: no wait is subtracted, for a variant could make its own threads wait."""
    found = clean(make_segment((2.0, 3.0, 4.0, 5.0), (1.0, 0.0, 1.0, 4.0)))
    assert (3.0, 4.0, 2.0) == found


def test_what_tells_nothing_counts_as_it_is() -> None:
    """Sessions from before waits were read, and GPUs."""
    segment = make_segment((1.0, 2.0))
    assert ((1.0, 2.0), 0.0, "") == (clean(segment), waiting([segment]), said([segment]))


@pytest.mark.parametrize(("theirs", "ours", "side"), [(0.4, 0.1, "reference"), (0.0, 0.2, "candidate")])
def test_a_round_counts_when_its_sides_were_disturbed_alike(theirs: float, ours: float, side: str) -> None:
    """Both by half is fair, one side alone is not; it is named with its share."""
    one, other = (make_segment((1.0,) * 4, (share,) * 4) for share in (theirs, ours))
    found = drop([one], [other])
    assert found is not None
    assert side == found.side
    assert f"{theirs:.0%} of the reference's time, {ours:.0%} of the candidate's" in found.reason
    assert drop([one], [one]) is None


def test_it_is_said_when_many_samples_were_disturbed() -> None:
    """With their share; one in a hundred is no news."""
    assert "" == said([make_segment((1.0,) * 100, (0.5,) + (0.0,) * 99)])
    found = said([make_segment((1.0,) * 4, (0.5, 0.5, 0.0, 0.0))])
    assert "other programs took the core during 50% of the samples: those were left out where possible" == found
