"""A slice of the random kills."""

from pathlib import Path

import pytest

from tests.faults import random_kills
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [0])
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, number: int) -> None:
    """Of a command."""
    assert "" == broken(random_kills, number, tmp_path)
