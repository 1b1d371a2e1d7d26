"""A slice of the preemptions."""

from pathlib import Path

import pytest

from tests.faults import preemption
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [0])
def test_a_preempted_session_ends_with_the_same_record(tmp_path: Path, number: int) -> None:
    """At one moment, on one cloud."""
    assert "" == broken(preemption, number, tmp_path)
