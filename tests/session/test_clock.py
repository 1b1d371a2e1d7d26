"""The time of a session, where the clock of the computer may have been set meanwhile."""

import pytest

from loop.session.course import own_seconds


@pytest.mark.parametrize(
    ("wall_s", "steps_s", "own_s"),
    [(80.5, 80.0, 0.5), (60.0, 0.0, 60.0), (1150.0, 1000.0, 150.0), (5.0, 80.0, 0.0), (1e4, 80.0, 0.0)],
    ids=["as a rule", "a minute", "a tenth", "a clock set back", "a machine that slept"],
)
def test_wall_time_that_contradicts_the_steps_is_not_counted(wall_s: float, steps_s: float, own_s: float) -> None:
    """The steps' own clock only goes forward."""
    assert own_s == own_seconds(wall_s, steps_s)
