"""Tiny targets in a test's own folder: real sources for the real compiler; some variants are wrong on purpose."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds.build import build
from loop.library.definitions import read_file
from loop.model.measurement import Build
from loop.model.plan import Plan
from loop.model.record import Finished
from loop.model.target import CAbiVariant, Target
from loop.steps.context import Context, Past, Task
from loop.workers.bench import Bench, Side
from tests.makers import make_machine

FLAGS = ["-std=c++17", "-O0"]
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "loop_kernel.h"
#include "scale.h"

#define KERNEL(name) LOOP_EXPORT int name(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *)
#define ENTRY(name) \
  static int name##_body(const float *x, float *y, int64_t rows, int64_t columns); \
  KERNEL(name) { \
    if (inputs[0].strides[1] != 1 || inputs[0].strides[0] != inputs[0].sizes[1]) return 4; \
    return name##_body((const float *)inputs[0].data, (float *)outputs[0].data, inputs[0].sizes[0], \
                       inputs[0].sizes[1]); \
  } \
  static int name##_body(const float *x, float *y, int64_t rows, int64_t columns)

static int fill(const float *x, float *y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = SCALE * x[i];
  return 0;
}

LOOP_EXPORT const char *loop_error(int error) {
  return error == 3 ? "no such shape" : error == 4 ? "inputs must be contiguous" : "inputs must be aligned";
}

ENTRY(right) { return fill(x, y, rows * columns); }
ENTRY(slow) {
  for (int again = 0; again < 20; ++again) fill(x, y, rows * columns);
  return 0;
}
ENTRY(epsilon) { fill(x, y, rows * columns); y[columns + 1] += 0.01f; return 0; }
ENTRY(sloppy) {
  fill(x, y, rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i) y[i] += 5e-5f;
  return 0;
}
ENTRY(transposed) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) y[j * rows + i] = SCALE * x[i * columns + j];
  return 0;
}
ENTRY(unwritten) { return fill(x, y, rows * columns - 1); }
ENTRY(outside) { fill(x, y, rows * columns); y[rows * columns + 2] = 1.0f; return 0; }
ENTRY(before) { fill(x, y, rows * columns); y[-1] = 1.0f; return 0; }
ENTRY(refuses) { return rows > 3 ? 3 : fill(x, y, rows * columns); }
ENTRY(crashes) {
  if (rows > 3) *(volatile int *)0 = 1;
  return fill(x, y, rows * columns);
}
ENTRY(hangs) {
  while (rows > 3) { volatile int busy = 0; (void)busy; }
  return fill(x, y, rows * columns);
}
ENTRY(fickle) {
  static int calls = 0;
  fill(x, y, rows * columns);
  y[0] += 1e-6f * (float)(calls++ % 2);
  return 0;
}
#ifdef __SSE2__
#include <fenv.h>
#include <xmmintrin.h>
ENTRY(flushes) { _mm_setcsr(_mm_getcsr() | 0x8040); return fill(x, y, rows * columns); }
ENTRY(traps) { feenableexcept(FE_UNDERFLOW); return fill(x, y, rows * columns); }
ENTRY(rounds_up) { _mm_setcsr((_mm_getcsr() & ~0x6000) | 0x4000); return fill(x, y, rows * columns); }
#endif
ENTRY(greedy) {
  fill(x, y, rows * columns);
  ((float *)x)[0] *= 2.0f;
  return 0;
}
ENTRY(smears) {
  float sum = 0.0f;
  for (int64_t i = 0; i < rows * columns; ++i) sum += x[i];
  for (int64_t i = 0; i < rows * columns; ++i) y[i] = SCALE * x[i] + 0.0f * sum;
  return 0;
}
ENTRY(heals) {
  for (int64_t i = 0; i < rows * columns; ++i) y[i] = isnan(x[i]) ? 0.0f : SCALE * x[i];
  return 0;
}
ENTRY(tires) {
  static int calls = 0;
  fill(x, y, rows * columns);
  if (++calls > 1000) y[columns] += 1.0f;
  return 0;
}
static float seen[1 << 16], answer[1 << 16];
ENTRY(by_address) {
  static const float *last = 0;
  if (x != last) fill(x, answer, rows * columns);
  last = x;
  memcpy(y, answer, rows * columns * sizeof(float));
  return 0;
}
ENTRY(by_value) {
  const size_t size = rows * columns * sizeof(float);
  for (int again = 0; again < 20 && memcmp(x, seen, size) != 0; ++again) fill(x, answer, rows * columns);
  memcpy(seen, x, size);
  memcpy(y, answer, size);
  return 0;
}
ENTRY(learns) {  /* As a processor does: quicker where every comparison turns out as in the last call. */
  static float last[1 << 16];
  uint32_t changed = 0, old, now;
  for (int64_t i = 0; i < rows * columns; ++i) {
    memcpy(&old, last + i, sizeof old);
    memcpy(&now, x + i, sizeof now);
    changed |= (old ^ now) >> 1;
  }
  memcpy(last, x, rows * columns * sizeof(float));
  for (int again = 0; again < 20 && changed; ++again) fill(x, answer, rows * columns);
  return fill(x, y, rows * columns);
}
KERNEL(typed) {
  const int64_t count = inputs[0].sizes[0] * inputs[0].sizes[1];
  if (inputs[0].strides[0] != inputs[0].sizes[1]) return 4;
  if (inputs[0].dtype != LOOP_FLOAT64) return fill((const float *)inputs[0].data, (float *)outputs[0].data, count);
  for (int64_t i = 0; i < count; ++i) ((double *)outputs[0].data)[i] = SCALE * ((const double *)inputs[0].data)[i];
  return 0;
}
static int by_strides(const LoopTensor *x, LoopTensor *y, uintptr_t mask, int64_t row) {
  const float *from = (const float *)((uintptr_t)x->data & mask);
  for (int64_t i = 0; i < x->sizes[0]; ++i)
    for (int64_t j = 0; j < x->sizes[1]; ++j)
      ((float *)y->data)[i * x->sizes[1] + j] = SCALE * from[i * row + j * x->strides[1]];
  return 0;
}
KERNEL(strides) { return by_strides(inputs, outputs, ~(uintptr_t)0, inputs[0].strides[0]); }
KERNEL(ignores_strides) { return by_strides(inputs, outputs, ~(uintptr_t)0, inputs[0].sizes[1]); }
KERNEL(rounds_down) { return by_strides(inputs, outputs, ~(uintptr_t)63, inputs[0].strides[0]); }
KERNEL(wants_aligned) {
  return (uintptr_t)inputs[0].data % 64 ? 5 : by_strides(inputs, outputs, ~(uintptr_t)0, inputs[0].strides[0]);
}
KERNEL(aborts_on_strides) {
  if (inputs[0].strides[0] != inputs[0].sizes[1]) *(volatile int *)0 = 1;
  return by_strides(inputs, outputs, ~(uintptr_t)0, inputs[0].strides[0]);
}
"""
HEADER = "#define SCALE 2.0f\n"
STARTS = ("ENTRY(", "KERNEL(")
ENTRIES = tuple(line.split("(")[1].split(")")[0] for line in SOURCE.splitlines() if line.startswith(STARTS))
PYTHON = """
def double(x):
    return x * 2

def plain(x):
    return x + x

def wrong_shape(x):
    return (x * 2).reshape(-1)

def raises(x):
    raise ValueError("cannot do this")

import itertools

numbers = itertools.count()

def moody(x):
    # Another answer each time for seven rows, and a wrong one for nine.
    return x * {7: 2 + next(numbers) * 1e-6, 9: 3}.get(len(x), 2)

def wavers(x):
    # The last bits differ from call to call.
    return x * 2 + next(numbers) % 2 * 2e-7

def races(x):
    # One element differs from call to call by more than rounding, within the tolerance.
    y = x * 2
    y[0, 0] += next(numbers) % 2 * 5e-6
    return y

def half_twice(x):
    # A property that holds: what is half as large comes out half as large.
    whole = yield [x], {}
    half = yield [x / 2], {}
    return half + half, whole

def thrice(x):
    # A property that does not hold.
    output = yield [x], {}
    return output, x * 3

def of_three_rows(x):
    # A property that has no meaning but for three rows.
    if len(x) != 3:
        return None
    output = yield [x], {}
    return output, x * 2

def row_by_row(x):
    # A property that asks for other shapes than those of the workload.
    whole = yield [x], {}
    first = yield [x[:1]], {}
    more = yield [x[[0, *range(len(x))]]], {}
    return more[:1] - first + more[1:], whole

def stumbles(x):
    # A property with a mistake in it.
    yield [x], {}
    raise ValueError("lost the thread")

def declines_strides(x):
    if not x.is_contiguous():
        raise NotImplementedError("x has to be contiguous")
    return x * 2

def trips_on_strides(x):
    if not x.is_contiguous():
        raise RuntimeError("x has to be contiguous")
    return x * 2

def declines(x):
    raise NotImplementedError("nothing at all")

def of_even_rows(x):
    assert len(x) % 2 == 0, "called with an odd number of rows"
    return x * 2

def gives_back(x):
    return kept.setdefault(x.shape, x * 2)

kept = {}
"""
PROGRAM = """
import array, json, os, sys
call = json.load(open(os.environ["LOOP_CALL"]))
assert sys.stdin.read() == "", "input is not empty"
values = array.array("f", open(call["inputs"][0]["path"], "rb").read())
scale = float(sys.argv[1])
open(call["output"]["path"], "wb").write(array.array("f", [scale * v for v in values]).tobytes())
print("some talk")
print(json.dumps({"seconds": 0.002}))
"""
WORKLOADS = {"some": [{"N": [2, 5], "M": 3}, {"N": 3, "M": 4}]}


def compiled(entry: str = "right", **fields: Any) -> dict[str, Any]:
    """A compiled variant of the tiny target."""
    recipe = {"compiler": "g++", "flags": FLAGS}
    base = {"kind": "c_abi", "device": "cpu", "sources": ["scale.cpp"], "entry": entry, "build": recipe}
    return {**base, **fields}


def importable(function: str, **fields: Any) -> dict[str, Any]:
    """A Python variant of the tiny target."""
    return {"kind": "python", "device": "cpu", "module": "tiny_functions", "function": function, **fields}


def external(*arguments: str, **fields: Any) -> dict[str, Any]:
    """A program that computes the tiny target's function through files."""
    run = [sys.executable, "-S", "program.py", *arguments]
    return {"kind": "command", "device": "cpu", "run": run, **fields}


def write_target(folder: Path, variants: dict[str, Any], **fields: Any) -> Target:
    """Write a project that doubles a matrix: manifest, C++, Python functions, program; read the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"scale.cpp": SOURCE, "scale.h": HEADER, "tiny_functions.py": PYTHON, "program.py": PROGRAM}
    for name, text in files.items():
        (folder / name).write_text(text)
    manifest = {
        "format": 2,
        "name": "tiny",
        "function": "scale",
        "signature": {"inputs": {"x": "N M"}, "outputs": {"output": "N M"}},
        "reference": {"python": "tiny_functions:double"},
        "plain": {"python": "tiny_functions:plain"},
        "baseline": {"python": "tiny_functions:double"},
        "tolerance": {"float32": {"atol": 1e-4, "rtol": 0.0}, "float64": {"atol": 1e-9, "rtol": 0.0}},
        "dtypes": {"cpu": "float32"},
        "workloads": WORKLOADS,
        "variants": variants,
    }
    (folder / "target.yaml").write_text(json.dumps({**manifest, **fields}, indent=1))
    return read_file(folder / "target.yaml", Target).value


def open_bench(folder: Path, target: Target, cache: Path) -> Bench:
    """A bench for a target in `folder`, its scratch folder beside the sources."""
    scratch = folder / "scratch"
    scratch.mkdir()
    builds = cache / "builds"
    return Bench(target, folder, builds, include_folder(), device="cpu", threads=1, scratch=scratch)


def make_builds(bench: Bench, *names: str) -> dict[str, Build]:
    variants = bench.compiled_variants(names)
    return {name: build_one(bench.folder, variant, bench.cache, name) for name, variant in variants.items()}


def build_one(folder: Path, variant: CAbiVariant, cache: Path, name: str = "right") -> Build:
    return run_to_end(build(name, variant, folder, cache=cache, include=include_folder(), limit_s=60.0))


def make_context(bench: Bench, *variants: str, finished: Sequence[Finished] = (), **fields: Any) -> Context:
    """The context that an action gets in a session at this bench."""
    plan = {"format": 1, "name": "p", "title": "p", "patterns": ("p",), "workloads": ("some",)}
    checks = fields.pop("checks", ())
    parsed = Plan.model_validate({**plan, "checks": checks, "budget": {"minutes": 1}})
    base: dict[str, Any] = {"machine": make_machine(), "seed": 0, "folder": bench.folder}
    past = {field.name: fields.pop(field.name) for field in dataclasses.fields(Past) if field.name in fields}
    of_task = {field.name: fields.pop(field.name) for field in dataclasses.fields(Task) if field.name in fields}
    task = Task(plan=parsed, variants=variants, **{**base, **of_task})
    return Context(bench, task, Past(**past), finished=finished, **fields)


def make_sides(bench: Bench, *names: str) -> list[Side]:
    """Sides of these variants; compiled ones are built."""
    builds = make_builds(bench, *names)
    return [bench.make_side(name, builds.get(name)) for name in names]
