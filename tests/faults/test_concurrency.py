"""A slice of the sessions at once."""

from pathlib import Path

import pytest

from tests.faults.concurrency import together


@pytest.mark.slow
def test_sessions_and_grants_at_once_are_all_kept(tmp_path: Path) -> None:
    """Three processes, a session and a grant each."""
    (tmp_path / "case").mkdir()
    assert "" == together(tmp_path / "case", seed="slice", each=1, processes=3)
