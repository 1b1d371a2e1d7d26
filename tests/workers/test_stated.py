"""What the program of an audit finds odd about a task."""

from typing import Any

import torch

from loop.workers.stated import Task, looked_at


def inputs() -> list[torch.Tensor]:
    """Inputs that follow from the seed."""
    return [torch.randn(4, 3)]


def doubling_in_place(x: torch.Tensor) -> torch.Tensor:
    """A reference that changes its input."""
    return x.mul_(2) + 1


def test_float64_agrees_with_a_reference_that_changes_its_inputs_in_place() -> None:
    names: dict[str, Any] = {"generator": f"{__name__}:inputs", "reference": f"{__name__}:doubling_in_place"}
    terms = {**names, "arguments": None, "checker": None, "is_class": False, "passes": "positional"}
    rule = {"atol": 1e-4, "rtol": 1e-4, "either": False, "nan": False, "device": "cpu"}
    found = looked_at(Task({**terms, **rule, "cases": [{"name": "one", "given": {}}]}))
    assert found["outputs"] == [[4, 3]]
    assert found["findings"] == []
