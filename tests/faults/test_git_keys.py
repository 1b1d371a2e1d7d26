"""A slice of the hostile repositories."""

from pathlib import Path

import pytest

from tests.faults import git_keys
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 11, 22, 43])
def test_no_program_of_a_repository_runs_before_trust(tmp_path: Path, number: int) -> None:
    """All keys at once; a submodule, a fetch, a worktree."""
    assert "" == broken(git_keys, number, tmp_path)
