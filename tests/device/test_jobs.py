"""Candidates of a campaign are compared in jobs on all GPUs. Skipped without a GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optimize.test_campaign import GAINS
from tests.optimize.test_session import commit_plan
from tests.projects import LOOP, loop, make_project

pytestmark = [pytest.mark.cuda, pytest.mark.nvcc]
KERNEL = """
#include <cuda_runtime.h>
#include "loop_kernel.h"

static __global__ void scale_rows(const volatile float *x, float *y, int64_t count, float factor) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float read = 0;
  for (int again = 0; again < 40; again++) read = x[i];
  y[i] = read * factor;
}

LOOP_EXPORT const char *loop_error(int error) { return cudaGetErrorName((cudaError_t)error); }
LOOP_EXPORT int scale(const LoopTensor *in, LoopTensor *out, const double *attributes, void *stream) {
  if (in[0].strides[1] != 1 || in[0].strides[0] != in[0].sizes[1]) return (int)cudaErrorNotSupported;
  const int64_t count = in[0].sizes[0] * in[0].sizes[1];
  const unsigned blocks = (unsigned)((count + 255) / 256);
  scale_rows<<<blocks, 256, 0, (cudaStream_t)stream>>>(
      (const float *)in[0].data, (float *)out[0].data, count, (float)attributes[0]);
  return (int)cudaGetLastError();
}
"""
OURS = "device: cpu, sources: [scale.c], entry: scale, build: {compiler: gcc, flags: [-O1]}"
ON_GPU = "device: cuda, sources: [scale.cu], entry: scale, build: {compiler: nvcc, flags: [-O2, -arch=native]}"
LIMIT_S = 400


def make_cuda_project(folder: Path) -> Path:
    """A kernel that reads everything forty times, committed and trusted."""
    make_project(folder)
    (folder / "scale.c").unlink()
    (folder / "scale.cu").write_text(KERNEL)
    manifest = (folder / "target.yaml").read_text()
    manifest = manifest.replace(OURS, ON_GPU).replace("[{N: 3, M: [5, 17]}]", "[{N: 1024, M: 4096}]")
    (folder / "target.yaml").write_text(manifest)
    commit_plan(folder)
    assert 0 == loop("trust", str(folder)).returncode
    return folder


@pytest.mark.slow
def test_candidates_are_compared_side_by_side_on_the_gpus(tmp_path: Path) -> None:
    """Each job compares one pair on one device under its lock; the faster candidate is kept."""
    folder, script = make_cuda_project(tmp_path / "project"), tmp_path / "propose.py"
    script.write_text(GAINS.replace("scale.c", "scale.cu"))
    words = ["--width", "2", "--max-candidates", "2", "--executor", "local", "--device", "cuda", "--json"]
    proposer = f"{sys.executable} {script} {{brief}} {{workdir}}"
    command = [*LOOP, "optimize", str(folder), "--plan", "improve", "--proposer", proposer, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env={**os.environ}, check=False
    )
    if out := os.environ.get("OUT"):  # Keep the results of a rented GPU.
        (Path(out) / "jobs.log").write_text(done.stderr)
        shutil.copytree(tmp_path / "sessions", Path(out) / "jobs-sessions", dirs_exist_ok=True)
    assert 0 == done.returncode, done.stderr
    changes = json.loads(done.stdout)["changes"]
    assert {1: "conflict", 2: "edited"} == {row["number"]: row["ended"] for row in changes["proposals"]}
    assert ["kept"] == [candidate["outcome"] for candidate in changes["judged"]]
    (session,) = (tmp_path / "sessions").iterdir()
    steps = [json.loads(line) for line in (session / "journal.jsonl").read_text().splitlines()]
    brief = next(line for line in steps if line.get("step") == "brief" and line["event"] == "finished")["output"]
    assert 2 == len(brief["jobs"])
    assert all(job["uuid"].startswith("GPU-") for job in brief["jobs"])
    first, second = sorted(brief["jobs"], key=lambda job: job["began"])
    if first["uuid"] == second["uuid"]:
        assert first["began"] + first["seconds"] <= second["began"]
