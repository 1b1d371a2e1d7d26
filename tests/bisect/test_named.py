"""A plain session names the commit of a regression: a slice of `make bench-regressions`."""

from pathlib import Path

import pytest

from tests.bench.regressions import CASES, tried


@pytest.mark.slow
def test_a_plain_session_names_the_commit(tmp_path: Path) -> None:
    """Of a wrong kernel on the processor."""
    found = tried(CASES["mask"], tmp_path)
    assert found.right, found.said
    assert CASES["mask"].title in found.said
