"""A slice of the nasty children."""

from pathlib import Path

import pytest

from tests.faults import children
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [12, 28])
def test_nothing_of_a_nasty_child_is_left(tmp_path: Path, number: int) -> None:
    """A daemon without environment whose session, a fork chain whose supervisor is killed."""
    assert "" == broken(children, number, tmp_path)
