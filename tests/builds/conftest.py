"""The project that is built."""

from pathlib import Path

import pytest

from tests.builds.project import TINY, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of one source and one header."""
    return write(tmp_path / "project", **TINY)
