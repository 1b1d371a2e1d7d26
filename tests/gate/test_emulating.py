"""`kernel.emulate` as a step: variants for a GPU, right or wrong under the emulator."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.gate.kernel import emulate
from loop.gate.verify import SideChecker
from loop.model.output import VerifyOutput
from loop.steps.context import ResultLifetime
from loop.workers.bench import Bench
from tests.targets import WORKLOADS, compiled, make_context, open_bench, write_target

SCALE = r"""
#include "loop_device.cuh"
#include "loop_kernel.h"

__global__ void scale(const float *x, float *y, int count, int factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  simt::shared_store(simt::shared_base() + threadIdx.x * 4, i < count ? simt::global_load(x + i) : 0.0f);
  BARRIER;
  const unsigned partner = blockDim.x - 1 - threadIdx.x;
  const float value = simt::shared_load<float>(simt::shared_base() + partner * 4);
  const int j = static_cast<int>(blockIdx.x * blockDim.x + partner);
  if (j < count + EXTRA) simt::global_store(y + j, factor * value);
}

static int run(const LoopTensor *inputs, LoopTensor *outputs, int factor) {
  const int64_t *sizes = inputs[0].sizes, *strides = inputs[0].strides;
  if (strides[1] != 1 || strides[0] != sizes[1]) return 4;
  const int count = static_cast<int>(sizes[0] * sizes[1]);
  const auto *x = static_cast<const float *>(inputs[0].data);
  auto *y = static_cast<float *>(outputs[0].data);
  simt::withdraw_all();
  simt::expose(x, sizeof(float) * count, "x", false);
  simt::expose(y, sizeof(float) * count, "y", true);
  return simt::launch<scale>(dim3((count + 63) / 64), dim3(64), 256, nullptr, x, y, count, factor) ? 0 : 3;
}

LOOP_EXPORT int twice(const LoopTensor *in, LoopTensor *out, const double *, void *) { return run(in, out, 2); }
LOOP_EXPORT int thrice(const LoopTensor *in, LoopTensor *out, const double *, void *) { return run(in, out, 3); }
LOOP_EXPORT const char *loop_error(int error) {
  return error == 4 ? "inputs must be contiguous" : simt::launch_error();
}
"""


def emulated(entry: str, barrier: str = "__syncthreads()", extra: int = 0) -> dict[str, Any]:
    """A variant for a GPU, with the recipe for the emulator."""
    defined = ["-DLOOP_EMULATE", f"-DBARRIER={barrier}", f"-DEXTRA={extra}"]
    flags = ["-x", "c++", "-std=c++17", "-O1", *defined, "-pthread"]
    nvcc = {"compiler": "nvcc", "flags": ["-arch={arch}"]}
    return compiled(entry, device="cuda", sources=["scale.cu"], build=nvcc, emulation={"flags": flags})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench with a warm judge for this file."""
    folder = tmp_path_factory.mktemp("emulating")
    variants = {
        "right": emulated("twice"),
        "wrong": emulated("thrice"),
        "racy": emulated("twice", barrier=""),
        "outside": emulated("twice", extra=1),
        "broken": emulated("twice", barrier="nonsense"),
        "ours": compiled(),
    }
    types, sets = {"cpu": "float64", "cuda": "float32"}, {**WORKLOADS, "others": [{"N": 4, "M": 5}]}
    target = write_target(folder, variants, dtypes=types, workloads=sets, flops="2e8 * N")
    (folder / "scale.cu").write_text(SCALE)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def emulate_all(bench: Bench, *names: str, **fields: Any) -> VerifyOutput:
    """Output of emulating these variants."""
    output = run_to_end(emulate(make_context(bench, "ours", emulated=names, **fields), ResultLifetime())).output
    assert isinstance(output, VerifyOutput)
    return output


@pytest.mark.slow
def test_a_wrong_one_is_incorrect_and_the_others_stand(bench: Bench) -> None:
    """It gets a verdict, as on a GPU, in the types of one: the session measures another on the processor."""
    output = emulate_all(bench, "right", "wrong")
    checks = output.variants[0]
    assert (True, {"float32"}) == (checks.emulated, {check.workload.dtype for check in checks.checks})
    assert output.control is not None
    assert output.control.is_right
    assert not output.ok
    assert (("right",), ("wrong",)) == (output.right, output.wrong)
    assert "N4 M5 float32" in {check.workload.name for check in checks.checks}, "a set beyond the plan"
    assert "no input is NaN or infinite: a kernel that is wrong on these would pass" in output.not_exercised
    assert {("wrong", "incorrect")} == {(verdict.variant, verdict.verdict) for verdict in output.verdicts}


@pytest.mark.slow
def test_the_next_one_computes_while_another_is_judged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their outputs stay apart: each is judged as if it were alone."""
    together = [checks.tally for checks in emulate_all(bench, "right", "wrong", "outside").variants]
    monkeypatch.setattr(SideChecker, "begin_check", lambda *_: None)
    assert together == [checks.tally for checks in emulate_all(bench, "right", "wrong", "outside").variants]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault"),
    [("racy", r"race: .* no barrier lies|nobody has written"), ("outside", r"outside all tensors: .* of y")],
)
def test_a_fault_is_told_with_thread_block_line_and_seed(bench: Bench, name: str, fault: str) -> None:
    """The check has the emulator's message, and the process that met the fault continues."""
    output = emulate_all(bench, name)
    assert not output.ok
    message = output.variants[0].checks[0].message
    assert re.search(r"thread \d+ of block \(0, 0, 0\) at scale\.cu:\d+: ", message)
    assert re.search(fault, message)
    assert re.search(r"\(seed \d+\)", message)
    assert len(output.variants[0].checks) == len(emulate_all(bench, "right").variants[0].checks)
    # It takes misaligned inputs, so a fault there is no layout that it declines.
    statuses = {check.inputs: check.status for check in output.variants[0].checks}
    layouts = ("contiguous", "misaligned", "strided")
    assert ("crashed", "crashed", "unsupported") == tuple(map(statuses.get, layouts))
