"""What every test of a judge needs."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def threads_and_gradients() -> Iterator[None]:
    """A judge chooses both for its process: here they are put back."""
    threads = torch.get_num_threads()
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)
