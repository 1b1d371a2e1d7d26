"""A slice of the nasty children."""

from pathlib import Path

import pytest

from tests.faults import children
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [8, 17])
def test_nothing_of_a_nasty_child_is_left(tmp_path: Path, number: int) -> None:
    """A daemon without environment at SIGTERM, a fork chain at SIGKILL."""
    assert "" == broken(children, number, tmp_path)
