"""For tests that end with a verdict on a speed: real times decide what they ask, on whatever machine this is."""

import pytest

timed = pytest.mark.flaky(reruns=2)
"""Three tries: a busy machine may leave a true difference `inconclusive`, which is no fault of the program."""
