"""The first and later calls of a process are judged: mistakes of kernels that keep state between calls."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import Job, WrongCalls, cause_of_repeat, verify
from loop.model.measurement import VariantChecks
from loop.model.workloads import expand_sets
from loop.workers.bench import Bench
from tests.targets import compiled, make_sides, open_bench, write_target

KERNELS = r"""
#include <stdint.h>
#include <string.h>
#include "loop_kernel.h"
#define KERNEL(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *, void *)
LOOP_EXPORT const char *loop_error(int) { return "no such layout"; }
static int twice(const LoopTensor &x, float *y, float scale) {
  for (int64_t i = 0; i < x.sizes[0]; i++)
    for (int64_t j = 0; j < x.sizes[1]; j++)
      *y++ = scale * ((const float *)x.data)[i * x.strides[0] + j * x.strides[1]];
  return 0;
}
static float table = 0, kept[1 << 12];
static int calls = 0;
KERNEL(table_comes_later) { float now = table; table = 2; return twice(in[0], (float *)out[0].data, now); }
KERNEL(second_is_wrong) { return twice(in[0], (float *)out[0].data, ++calls == 2 ? 3 : 2); }
KERNEL(keeps_the_largest) {
  float *y = (float *)out[0].data;
  twice(in[0], y, 2);
  for (int64_t i = 0; i < in[0].sizes[0] * in[0].sizes[1]; i++)
    y[i] = kept[i] = !calls || y[i] > kept[i] ? y[i] : kept[i];
  return calls++ < 0;
}
struct Table { float scale; Table() : scale(2) {} };
static Table made_at_load;
KERNEL(table_at_load) { return twice(in[0], (float *)out[0].data, made_at_load.scale); }
KERNEL(inner_is_dense) {
  LoopTensor x = in[0];
  x.strides[1] = 1;
  return twice(x, (float *)out[0].data, 2);
}
KERNEL(no_row_twice) {
  LoopTensor x = in[0];
  x.strides[0] = x.strides[0] ? x.strides[0] : 1;
  return twice(x, (float *)out[0].data, 2);
}
KERNEL(no_column_twice) {
  LoopTensor x = in[0];
  x.strides[1] = x.strides[1] ? x.strides[1] : 1;
  return twice(x, (float *)out[0].data, 2);
}
KERNEL(dense_alone) {
  return in[0].strides[1] != 1 || in[0].strides[0] != in[0].sizes[1] ? 1 : twice(in[0], (float *)out[0].data, 2);
}
"""
FUNCTIONS = """
import time

seen, kept, table = set(), {}, {}


def first_of_a_shape(x):
    wrong = x.shape not in seen
    seen.add(x.shape)
    return x * (3 if wrong else 2)


def by_address(x):
    return kept.setdefault((x.data_ptr(), x.shape), x * 2).clone()


def by_shape(x):
    return kept.setdefault(x.shape, x * 2).clone()


def lazy_table(x):
    return x * table.setdefault("scale", 2)


def tunes_itself(x):
    if not table:
        time.sleep(1.5)
        table["best"] = 2
    return x * table["best"]


def inner_is_dense(x):
    return x.as_strided(x.shape, (x.stride(0), 1)) * 2 if x.stride(1) > 1 else x * 2
"""
PYTHON = ("first_of_a_shape", "by_address", "by_shape", "lazy_table", "tunes_itself", "inner_is_dense")
C = tuple(line.split("(")[1].split(")")[0] for line in KERNELS.splitlines() if line.startswith("KERNEL("))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench of kernels that depend on the calls before, or on how inputs lie."""
    folder = tmp_path_factory.mktemp("turns")
    variants = {name: compiled(name, sources=["turns.cpp"]) for name in C}
    python = {"kind": "python", "device": "cpu", "module": "turns"}
    variants |= {f"py_{name}": {**python, "function": name} for name in PYTHON}
    variants["dense_by_takes"] = {**variants["inner_is_dense"], "takes": 'layout != "transposed"'}
    target = write_target(folder, variants, workloads={"some": [{"N": [5, 16], "M": 12}]})
    (folder / "turns.cpp").write_text(KERNELS)
    (folder / "turns.py").write_text(FUNCTIONS)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def checked(bench: Bench, *names: str, seed: int = 0) -> dict[str, VariantChecks]:
    """Checks of these variants by name; each workload has two sets of values."""
    chosen = [case for step in (0, 1) for case in expand_sets(bench.target, ["some"], "float32", seed + step)]
    jobs = [Job(side, chosen) for side in make_sides(bench, *names)]
    return {side.variant: side for side in run_to_end(verify(bench, jobs))}


def causes(checks: dict[str, VariantChecks]) -> dict[str, str]:
    """Variant to the cause of its first failure."""
    return {name: side.first_failure.cause if side.first_failure else "" for name, side in checks.items()}


@pytest.mark.slow
def test_a_wrong_first_call_is_found_and_named(bench: Bench) -> None:
    """A table that only exists after the first call, or after the first call of a shape."""
    seed = 7
    checks = checked(bench, "table_comes_later", "py_first_of_a_shape", seed=seed)
    assert {"table_comes_later": "first call", "py_first_of_a_shape": "first call"} == causes(checks)
    failure = checks["table_comes_later"].first_failure
    assert failure is not None
    assert failure.message.startswith("wrong in the first call of its process, right afterwards: ")


@pytest.mark.slow
def test_wrong_later_calls_are_found_and_named(bench: Bench) -> None:
    """A wrong second call, a maximum that is never reset, and answers cached by address or shape are found."""
    names = ("keeps_the_largest", "py_by_address", "py_by_shape")
    assert dict.fromkeys(names, "later calls") == causes(checked(bench, *names))
    assert not checked(bench, "second_is_wrong")["second_is_wrong"].is_right


def test_what_is_made_once_and_right_passes(bench: Bench) -> None:
    """A static initialiser may make it, or the first call."""
    checks = checked(bench, "table_at_load", "py_lazy_table")
    assert all(side.is_right for side in checks.values())


@pytest.mark.parametrize("name", ["inner_is_dense", "no_row_twice", "no_column_twice", "py_inner_is_dense"])
def test_a_kernel_that_trusts_one_layout_is_wrong(bench: Bench, name: str) -> None:
    """A transposed innermost axis, or a stride of 0 in the first axis or in the last."""
    (side,) = checked(bench, name).values()
    wrong = {check.inputs for check in side.checks if not check.passed}
    assert ("transposed" if "dense" in name else "broadcast") in wrong
    assert not wrong & {"contiguous", "strided", "misaligned"}


def test_a_layout_may_be_declined_or_left_out(bench: Bench) -> None:
    """An error number declines it, `takes` leaves it out; both are counted."""
    sides = checked(bench, "dense_alone", "dense_by_takes")
    assert "right on 5, not supported on 4 (strided x1, transposed x1, broadcast x2)" == sides["dense_alone"].tally
    assert "not supported on 1 (layout=transposed x1)" in sides["dense_by_takes"].tally


@pytest.mark.slow
def test_a_slow_first_call_is_waited_for_and_a_longer_one_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later calls have the usual limit; the message names the key that allows a longer first call."""
    monkeypatch.setattr("loop.gate.verify.CALL_LIMIT_S", 1.0)
    monkeypatch.setattr("loop.gate.verify.PATIENCE", 0.0)
    assert checked(bench, "py_tunes_itself")["py_tunes_itself"].is_right
    monkeypatch.setattr(bench, "first_call_s", 1.0)
    (side,) = checked(bench, "py_tunes_itself").values()
    failure = side.first_failure
    assert failure is not None
    assert "hung" == failure.status
    assert "the first call took longer than 1 s" in failure.message
    assert "`first_call_s` in target.yaml" in failure.message


@pytest.mark.parametrize(
    ("calls", "which", "cause"),
    [
        (WrongCalls("first", is_fresh_process=True), "first", "first call"),
        (WrongCalls("first", is_fresh_process=True), "none", ""),
        (WrongCalls("all", is_fresh_process=False), "none", "later calls"),
        (WrongCalls("all", is_fresh_process=False), "all", ""),
        (WrongCalls("later", is_fresh_process=True), "later", "later calls"),
        (WrongCalls("later", is_fresh_process=True), "mixed", ""),
        (WrongCalls("mixed", is_fresh_process=False), "mixed", ""),
    ],
)
def test_a_race_is_no_matter_of_turns(calls: WrongCalls, which: str, cause: str) -> None:
    """A race is the cause unless two processes agree on which calls are wrong."""
    assert cause == cause_of_repeat(calls, dataclasses.replace(calls, which=which, is_fresh_process=True))  # type: ignore[arg-type]


NORMED = """
import torch


def normed(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def in_one_pass(x):
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    square = (x * x).sum(-1, keepdim=True) / x.shape[-1] - mean * mean
    return (x - mean) * torch.rsqrt(square.clamp(min=0) + 1e-5)


def columns_are_dense(x):
    return normed(x if x.stride(0) else torch.cat([x[:1], torch.zeros_like(x[1:])]))
"""


@pytest.mark.slow
def test_equal_values_that_leave_rounding_alone_blame_no_layout(tmp_path: Path, build_cache: Path) -> None:
    """A normalised row of equal values is zero, so outputs are pure rounding: no layout may be blamed."""
    python = {"kind": "python", "device": "cpu", "module": "normed"}
    variants = {name: {**python, "function": name} for name in ("in_one_pass", "columns_are_dense")}
    target = write_target(
        tmp_path,
        variants,
        **{key: {"python": "normed:normed"} for key in ("reference", "baseline")},
        plain=None,
        tolerance={"float32": {"atol": 1e-5, "rtol": 1e-5}},
        workloads={"some": [{"N": 33, "M": 100}]},
    )
    (tmp_path / "normed.py").write_text(NORMED)
    with open_bench(tmp_path, target, build_cache) as bench:
        checks = checked(bench, *variants)
        assert checks["in_one_pass"].is_right
        assert {"broadcast"} == {check.inputs for check in checks["columns_are_dense"].checks if not check.passed}
        assert any("in_one_pass on N33 M100 float32 with broadcast inputs" in note for note in bench.notes)
