"""The time of a session, where the clock of the computer may have been set meanwhile."""

from loop.session.grading import believed


def test_wall_time_counts_where_it_agrees_with_the_steps() -> None:
    """Steps of 80 s in 80.3 s: 0.3 s were loop's own."""
    took = believed(80.3, [50.0, 30.0])
    assert (80.3, "") == (took.seconds, took.note)
    assert 0.29 < took.own_seconds < 0.31


def test_a_clock_that_was_set_back_is_not_believed() -> None:
    """80 s of steps cannot have passed in 5: their own clock only goes forward."""
    took = believed(5.0, [50.0, 30.0])
    assert (80.0, 0.0) == (took.seconds, took.own_seconds)
    assert "the clock was set back: 5 s passed by it, 80 s in the steps" in took.note


def test_hours_between_steps_are_not_believed() -> None:
    """A laptop that slept for three hours, or a clock that was set forward."""
    took = believed(3 * 3600.0 + 80.0, [50.0, 30.0])
    assert 80.0 == took.seconds
    assert "set forward, or the machine slept" in took.note


def test_a_minute_between_steps_is() -> None:
    """And a tenth of what the steps took."""
    assert "" == believed(60.0, []).note
    assert "" == believed(1150.0, [1000.0]).note
    assert "" != believed(1170.0, [1000.0]).note
