"""A plain session names the commit of a regression: a slice of `make bench-regressions`."""

from pathlib import Path

import pytest

from tests.bench.regressions import CASES, tried


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mask", pytest.param("spills", marks=pytest.mark.nvcc)])
def test_a_plain_session_names_the_commit(name: str, tmp_path: Path) -> None:
    """Of a wrong kernel on the processor, and of one that spills, without a GPU."""
    found = tried(CASES[name], tmp_path)
    assert found.right, found.said
    assert CASES[name].title in found.said
