"""The mark of tests whose result depends on real times of this machine."""

import pytest

timed = pytest.mark.flaky(reruns=2)
"""Three tries: on a busy machine a true difference may be `inconclusive`, which is no fault of loop."""
