"""`loop kernels resources`: what a GPU would do, as a user asks it without a session."""

import json
import shutil
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
def test_what_nothing_told_is_said(tmp_path: Path) -> None:
    """Without nvcc: shapes of launch, and what would mend the rest."""
    done = loop("kernels", "resources", "v", "--target", project(tmp_path / "p", build=NO_NVCC))
    assert 0 == done.returncode, done.stderr
    assert "kernel                  regs  spill  shared  blocks/SM  MMA" in done.stdout
    assert "tiny::rows<float, 128>  -     -      2 KiB   12         -" in done.stdout
    assert "nothing was compiled for sm_89: registers and spills are not known" in done.stdout
    assert "not exercised: compiler's report for sm_89: v: /nowhere/nvcc: no such compiler" in done.stdout


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
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


@pytest.mark.slow
def test_a_gpu_that_the_target_does_not_know_is_refused(tmp_path: Path) -> None:
    """With those that it does."""
    done = loop("kernels", "resources", "--target", project(tmp_path / "p", build=NO_NVCC), "--gpu", "sm_100")
    assert 2 == done.returncode
    assert "target tiny has no device 'sm_100'" in done.stderr
    assert "sm_89 (NVIDIA L4)" in done.stderr
