"""A slice of the random signals."""

from pathlib import Path

import pytest

from tests.faults import random_signals
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [2])
def test_a_signal_at_any_moment_is_obeyed(tmp_path: Path, number: int) -> None:
    """While it forks; the session goes on."""
    assert "" == broken(random_signals, number, tmp_path)
