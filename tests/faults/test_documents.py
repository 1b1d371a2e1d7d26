"""A slice of the generated documents."""

from pathlib import Path

import pytest

from tests.faults import documents
from tests.faults.slices import broken


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 100])
def test_generated_text_is_read_or_refused_with_a_place(tmp_path: Path, number: int) -> None:
    """Three hundred texts."""
    assert "" == broken(documents, number, tmp_path)
