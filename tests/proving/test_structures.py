"""Controls of functions of any structure: several outputs, tuples and dicts, modules with weights."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.processes import run_to_end
from loop.mistakes import functions
from loop.proving.actions import ProofTerms, prove_gate
from loop.proving.prove import GateOutput, controls_by_shape
from loop.workers.bench import Bench
from tests.session.mix import make_context
from tests.targets import open_bench
from tests.tasks import write_task

TERMS = {"tolerance": {"atol": 0.0, "rtol": 0.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all examples."""
    return tmp_path_factory.mktemp("structures")


@pytest.fixture(scope="module")
def shared(folder: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench whose judge and nursery serve all examples."""
    with open_bench(folder, write_task(folder, "model"), build_cache) as bench:
        yield bench


def score(shared: Bench, folder: Path, name: str, variant: str = "right") -> GateOutput:
    """What proving the gate on a variant of an example finds."""
    bench = replace(shared, target=write_task(folder, name), _nursery=shared.nursery)
    output = run_to_end(prove_gate(make_context(bench, variant), ProofTerms(python=True))).output
    assert isinstance(output, GateOutput)
    return output


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("model", 18), ("partly", 12)])
def test_every_control_is_found_for_its_reason(name: str, least: int, shared: Bench, folder: Path) -> None:
    """And what is honest passes. Where only a scalar is a floating-point input, fewer make a difference."""
    output = score(shared, folder, name)
    assert output.ok, output.message
    assert all(one.killed != (one.kind == "honest") for one in output.controls)
    erring = [one for one in output.controls if one.kind != "honest"]
    assert [] == [(one.name, one.reason) for one in erring if not one.right_reason]
    assert least <= len(erring)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant", "why"),
    [
        ("quantised", "right", "no floating-point numbers among both inputs and outputs"),
        ("passed", "written", "its outputs are passed to it"),
    ],
)
def test_what_no_control_is_made_of_is_said(
    name: str, variant: str, why: str, shared: Bench, folder: Path
) -> None:
    """With its reason; nothing is counted."""
    output = score(shared, folder, name, variant)
    assert 0 == output.total
    assert any(why in one for one in output.not_applicable)


def test_shapes_decide_which_controls_can_show() -> None:
    """A tail of one element is all of it; an input is given back only where it has the output's shape."""
    shown = {one.name: shows for one, shows in controls_by_shape([[4, 1], [3]], [4, 1])}
    assert (True, False) == (shown["answers in input0"], shown["zeros in tail of axis1"])
    assert "answers in input1" not in shown
    assert {"zeros", "stale output", "writes to input1"} <= set(shown)


class Scaled(torch.nn.Module):
    """A module with a weight."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), factor), requires_grad=False)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        """Its output stands beside one that is no tensor of numbers."""
        return {"y": x * self.weight, "n": torch.tensor(3)}


def test_erring_modules_share_their_memory_and_widen_a_copy_of_their_weights() -> None:
    """A stale output may be another instance's; an honest float64 answer is rounded back."""
    kind = functions.erring_class(Scaled, {"make": "stale", **TERMS})
    first, second = kind(2.0)(torch.ones(3)), kind(5.0)(torch.ones(3))
    assert [2.0, 2.0, 2.0] == first["y"].tolist() == second["y"].tolist()
    assert 3 == int(second["n"])
    assert isinstance(kind(1.0), Scaled)
    one = functions.erring_class(Scaled, {"make": "exact", **TERMS})(1 / 3)
    found = one(torch.full((3,), 3.0))["y"]
    assert (torch.float32, [1.0, 1.0, 1.0]) == (found.dtype, found.tolist())
    assert torch.float32 == one.weight.dtype
    assert ["weight"] == list(one.state_dict())
