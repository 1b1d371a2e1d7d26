"""Emulated kernels with sanitizers: mistakes that the emulator cannot see are reported; right kernels pass."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.model.measurement import Check
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from loop.workers.program import parse_fault
from tests.targets import build_one, compiled, open_bench, write_target

SOURCE = r"""
#include "loop_device.cuh"
#include "loop_kernel.h"

using namespace simt;

static float table[32];

enum Way { kNothing, kTable, kSum };

// y = 2 x, and on the way `reach` elements of a table are written, or `reach` is added to itself.
template <Way kWay>
__global__ void twice(const float *x, float *y, int count, int reach) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float *volatile place = table;  // Volatile: the compiler does not know where it points.
  volatile int sum = 0;
  if constexpr (kWay == kSum) sum = reach + reach;
  if constexpr (kWay == kTable) {
    for (int n = 0; n < reach; n++) place[n] = 1.0f;
  }
  global_store(y + i, 2.0f * global_load(x + i));
}

template <Way kWay>
static int run(const LoopTensor *in, LoopTensor *out, int reach) {
  const int count = static_cast<int>(in->sizes[0] * in->sizes[1]);
  if (in->strides[1] != 1 || in->strides[0] != in->sizes[1]) return 4;
  const float *x = static_cast<const float *>(in->data);
  float *y = static_cast<float *>(out->data);
  return launch<twice<kWay>>(dim3((count + 63) / 64), dim3(64), 0, nullptr, x, y, count, reach) ? 0 : 3;
}
#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *, void *)
ENTRY(clean) { return run<kNothing>(in, out, 4); }
ENTRY(beyond_the_table) { return run<kTable>(in, out, 33); }
ENTRY(overflows) { return run<kSum>(in, out, 0x7fffffff); }
LOOP_EXPORT const char *loop_error(int error) { return error == 4 ? "inputs must be contiguous" : launch_error(); }
"""
BITES = {
    "beyond_the_table": "AddressSanitizer: global-buffer-overflow",
    "overflows": "runtime error: signed integer overflow: 2147483647 ",
}


def emulated(entry: str) -> dict[str, Any]:
    """A variant for a GPU; all of them share a library."""
    flags = ["-x", "c++", "-std=c++17", "-O1", "-DLOOP_EMULATE", "-pthread"]
    recipes = {"build": {"compiler": "nvcc", "flags": []}, "emulation": {"flags": flags}}
    return compiled(entry, device="cuda", sources=["scale.cu"], **recipes)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench that sanitizes."""
    folder = tmp_path_factory.mktemp("sanitized")
    target = write_target(folder, {name: emulated(name) for name in ("clean", *BITES)})
    (folder / "scale.cu").write_text(SOURCE)
    with open_bench(folder, target, build_cache) as opened:
        opened.sanitize = True
        yield opened


def checks_of(bench: Bench, name: str) -> tuple[Check, ...]:
    """Checks of a variant that is emulated with sanitizers, on contiguous inputs."""
    (variant,) = bench.emulated_variants([name]).values()
    side = bench.make_side(name, build_one(bench.folder, variant, bench.cache, name), emulated=True)
    workloads = expand_sets(bench.target, ["some"], "float32")
    (verified,) = run_to_end(verify(bench, [Job(side, workloads, layouts=False)]))
    return tuple(verified.checks)


@pytest.mark.slow
def test_a_right_kernel_passes(bench: Bench) -> None:
    """No false alarm: neither the fibers' stacks nor Python's own memory is complained of."""
    assert {"right"} == {check.status for check in checks_of(bench, "clean")}


@pytest.mark.slow
@pytest.mark.parametrize("name", BITES)
def test_what_the_emulator_does_not_see_is_told(bench: Bench, name: str) -> None:
    """Its worker dies of a bad host array or bad arithmetic, and the message has kind and place."""
    for check in checks_of(bench, name):
        assert ("crashed", True) == (check.status, BITES[name] in check.message), check.message
        assert "scale.cu:" in check.message


def test_a_report_becomes_a_line() -> None:
    """The line is the sanitizer's summary; "" without a report."""
    address = (
        "==7==ERROR: AddressSanitizer: SEGV on x\nSUMMARY: AddressSanitizer: SEGV /a/b.cu:7 in f()\nShadow bytes"
    )
    undefined = "/a/b.cuh:12:3: runtime error: shift exponent 40 is too large\n    #0 0x1 in f"
    assert ("sanitizer", "AddressSanitizer: SEGV /a/b.cu:7 in f()") == parse_fault(address)
    assert ("sanitizer", "runtime error: shift exponent 40 is too large at b.cuh:12") == parse_fault(undefined)
    assert ("", "") == parse_fault("Segmentation fault")
