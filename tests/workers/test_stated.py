"""What the program of an audit finds odd about a task."""

from typing import Any

import pytest
import torch

from loop.workers.stated import StatedTask, audit_task, judge_answer


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
    found = audit_task(StatedTask({**terms, **rule, "cases": [{"name": "one", "given": {}}]}))
    assert found["outputs"] == [[4, 3]]
    assert found["findings"] == []


def short_of_memory(x: torch.Tensor) -> torch.Tensor:
    """An answer that meets a full GPU."""
    raise torch.OutOfMemoryError("CUDA out of memory")


def raising(x: torch.Tensor) -> torch.Tensor:
    """An answer with a bug."""
    raise ValueError("no such axis")


@pytest.mark.parametrize(("answer", "status"), [("short_of_memory", "failed"), ("raising", "wrong")])
def test_a_machine_without_memory_makes_no_answer_wrong(answer: str, status: str) -> None:
    names: dict[str, Any] = {"generator": f"{__name__}:inputs", "reference": f"{__name__}:doubling_in_place"}
    terms = {**names, "arguments": None, "checker": None, "is_class": False, "passes": "positional"}
    task = StatedTask({**terms, "device": "cpu", "trials": 1, "cases": [{"name": "one", "given": {}}]})
    assert status == judge_answer(task, f"{__name__}:{answer}")["status"]
