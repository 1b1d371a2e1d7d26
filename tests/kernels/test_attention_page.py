"""The page of `make bench-attention`: what is recorded is what it says."""

import json

import pytest

from tests.bench.attention_page import PAGE, RECORDED, page


@pytest.mark.skipif(not RECORDED.exists(), reason="nothing was recorded")
def test_the_page_is_that_of_the_recorded_rows() -> None:
    """No figure in it was written by hand."""
    assert PAGE.read_text() == page(json.loads(RECORDED.read_text()))
