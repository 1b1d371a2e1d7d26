"""What the steps of a session stand on: the target's sources and definitions."""

from pathlib import Path

import pytest

from loop.base.places import project
from loop.library.targets import ground
from tests.own_targets import write_own


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target of a user's own."""
    return write_own(tmp_path / "softmax", "softmax")


def test_an_edit_of_a_source_is_other_ground(target: Path) -> None:
    """And so is one of the manifest, or a new pattern."""
    before = ground(project(target, target))
    (target / "patterns").mkdir()
    (target / "patterns" / "mine.yaml").write_text("format: 1\n")
    with_pattern = ground(project(target, target))
    (target / "softmax.cpp").write_text((target / "softmax.cpp").read_text() + "\n// edited\n")
    assert 3 == len({before, with_pattern, ground(project(target, target))})
