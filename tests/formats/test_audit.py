"""Mistakes of loop's own as answers to tasks of other formats, and who accepts them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loop.cli import app
from loop.cli.tasks import choose_controls
from loop.formats.table import write_as_target
from loop.mistakes import functions
from loop.workers.stated import StatedTask
from tests.formats import tasks

TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
RULE = {
    **dict.fromkeys(("generator", "reference", "arguments", "checker", "cap")),
    "atol": 0.1,
    "rtol": 0.1,
    "either": False,
    "matched": 1.0,
    "strict": False,
    "finite": False,
    "nan": True,
    "is_class": False,
}


def test_each_kind_of_mistake_is_tried_once() -> None:
    """Each mistake that verification has to find occurs once; those that the shapes do not allow are left out."""
    makes = [control.make for control in choose_controls([[8, 16], [16]], [8, 16])]
    assert len(set(makes)) == len(makes)
    assert {"none", "zeros", "mean", "stale", "by_address", "round_inputs", "other_type", "write_input"} <= {
        *makes
    }
    assert "swap" not in makes


def test_a_mistake_changes_floating_point_tensors_alone() -> None:
    """It sees floating-point tensors alone; whole numbers and other outputs go by it."""

    def honest(data: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return data["places"] + 1, 2.0 * data["values"]

    inputs = {"places": torch.arange(3), "values": torch.ones(3)}
    whole, wrong = functions.erring_function(honest, {"make": "zeros", "tolerance": TOLERANCE})(inputs)
    assert ([1, 2, 3], [0.0, 0.0, 0.0]) == (whole.tolist(), wrong.tolist())


@pytest.mark.parametrize(
    ("changes", "output", "why"),
    [
        ({}, [1.19, 100.0], ""),
        ({}, [1.21, 100.0], "1 of 2 elements"),
        ({"either": True}, [1.11, 100.0], "1 of 2 elements"),
        ({"matched": 0.5}, [9.0, 100.0], ""),
        ({"matched": 0.5, "cap": 5.0}, [9.0, 100.0], "an error above 5"),
        ({}, [float("nan"), 100.0], "1 of 2 elements"),
        ({"strict": True}, [0.0, 0.0], "all zeros"),
        ({"matched": 0.5, "finite": True}, [float("nan"), 100.0], "NaN or infinity"),
    ],
)
def test_the_stated_tolerance_is_applied(changes: dict[str, Any], output: list[float], why: str) -> None:
    """Beyond the sum, or beyond both; a share of elements may be off."""
    task = StatedTask({**RULE, **changes})
    assert why == task.explain_difference(torch.tensor([1.0, 100.0]), torch.tensor(output))


@pytest.mark.slow
def test_an_audit_says_which_mistakes_each_side_accepts(tmp_path: Path) -> None:
    """Without a GPU it is the stated rule of KernelBench, and the audit says so."""
    constant = "x = torch.rand(rows, features) - 0.5\n    y = torch.ones(1)\n    return [x, y]"
    text = tasks.KERNELBENCH.replace("x = torch.rand(rows, features)\n    return [x]", constant)
    task = tasks.kernelbench(tmp_path, text.replace("x: torch.Tensor)", "x: torch.Tensor, y: torch.Tensor)"))
    folder, _ = write_as_target(task)
    assert 0 == CliRunner().invoke(app, ["trust", str(folder)]).exit_code
    done = CliRunner().invoke(app, ["targets", "audit", str(task), "--device", "cpu", "--json"])
    assert 0 == done.exit_code, done.output
    audit = json.loads(done.stdout)
    verdicts = {control["control"]: (control["ours"], control["theirs"]) for control in audit["controls"]}
    assert "applied by loop: not its evaluator" in audit["theirs"]
    assert ("right", "right") == verdicts["honest, by way of a control"]
    assert ("wrong", "wrong") == verdicts["zeros"]
    assert ("wrong", "right") == verdicts["writes to input0"]
    assert {"never varies", "timing"} <= {finding["kind"] for finding in audit["findings"]}
