"""Fixtures of all tests of a judge."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def threads_and_gradients() -> Iterator[None]:
    """Restore torch's threads and gradient mode, which a judge sets for its process."""
    threads = torch.get_num_threads()
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)
