"""`loop kernels resources`: what a GPU would do, as a user asks it without a session."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.projects import loop
from tests.tiny_cuda import cuda, nvcc, write_cuda_target

NO_NVCC = nvcc(compiler="/nowhere/nvcc")


def project(folder: Path, **fields: Any) -> str:
    """A trusted project with one CUDA variant."""
    write_cuda_target(folder, {"v": cuda(**fields)})
    assert 0 == loop("trust", str(folder)).returncode
    return str(folder)


@pytest.mark.slow
@pytest.mark.nvcc
def test_a_broken_budget_is_exit_1_and_json_has_everything(tmp_path: Path) -> None:
    """The outputs of the step, as in a session's journal."""
    folder = project(tmp_path / "p", budgets=[{"kernel": "rows", "registers": 4}])
    done = loop("kernels", "resources", "--target", folder, "--json")
    assert 1 == done.returncode
    found = json.loads(done.stdout)
    (step,) = found["steps"]
    assert (1, "failed", "sm_89") == (found["schema_version"], step["status"], step["output"]["device"])
    assert 3 == len(step["output"]["libraries"][0]["kernels"])
    assert all(text.endswith("registers, budget 4") for text in step["output"]["broken"])
