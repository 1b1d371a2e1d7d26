"""A target with everything a signature can have, small: relu(sign * scale * a b), in many honest shapes."""

import json
from pathlib import Path
from typing import Any

from loop.library.definitions import read_file
from loop.machine.machine import machine
from loop.model.plan import Plan, TimeBudget
from loop.model.target import Target
from loop.steps.context import Context, Task
from loop.workers.bench import Bench

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <thread>
#include <vector>
#include "loop_kernel.h"

struct Sizes { int64_t b, n, k, m; };
typedef float (*Dot)(const float *a, const float *b, int64_t k, int64_t m);

static float forward(const float *a, const float *b, int64_t k, int64_t m) {
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += a[i] * b[i * m];
  return sum;
}
static float backward(const float *a, const float *b, int64_t k, int64_t m) {
  float sum = 0;
  for (int64_t i = k; i-- > 0;) sum += a[i] * b[i * m];
  return sum;
}
static float in_double(const float *a, const float *b, int64_t k, int64_t m) {
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += (double)a[i] * b[i * m];
  return (float)sum;
}
static float pairwise(const float *a, const float *b, int64_t k, int64_t m) {
  if (k < 4) return forward(a, b, k, m);
  return pairwise(a, b, k / 2, m) + pairwise(a + k / 2, b + k / 2 * m, k - k / 2, m);
}

static Sizes sizes(const LoopTensor *in) {
  return {in[0].sizes[0], in[0].sizes[1], in[0].sizes[2], in[1].sizes[2]};
}
static float finish(float value, const double *attributes) {
  value *= (float)((attributes[1] != 0 ? -1.0 : 1.0) * (isnan(attributes[2]) ? 1.0 : attributes[2]));
  return attributes[0] != 0 && value < 0 ? 0 : value;
}
static int strided(const LoopTensor *in) {
  for (int t = 0; t < 2; ++t) {
    int64_t step = 1;
    for (int d = 2; d >= 0; step *= in[t].sizes[d--])
      if (in[t].sizes[d] > 1 && in[t].strides[d] != step) return 3;
  }
  return 0;
}
static void rows(const LoopTensor *in, float *y, const double *attributes, Dot dot, int64_t first, int64_t last) {
  const Sizes s = sizes(in);
  const float *a = (const float *)in[0].data, *b = (const float *)in[1].data;
  for (int64_t row = first; row < last; ++row)
    for (int64_t j = 0; j < s.m; ++j)
      y[row * s.m + j] = finish(dot(a + row * s.k, b + row / s.n * s.k * s.m + j, s.k, s.m), attributes);
}
static int all(const LoopTensor *in, LoopTensor *out, const double *attributes, Dot dot) {
  if (strided(in)) return 3;
  const Sizes s = sizes(in);
  rows(in, (float *)out[0].data, attributes, dot, 0, s.b * s.n);
  return 0;
}

#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *attributes, void *)
LOOP_EXPORT const char *loop_error(int) { return "inputs have to be contiguous"; }

ENTRY(mix) { return all(in, out, attributes, forward); }
ENTRY(mix_backward) { return all(in, out, attributes, backward); }
ENTRY(mix_in_double) { return all(in, out, attributes, in_double); }
ENTRY(mix_pairwise) { return all(in, out, attributes, pairwise); }
ENTRY(mix_slow) {
  usleep(2000);
  return all(in, out, attributes, forward);
}
ENTRY(mix_output_as_workspace) {
  if (strided(in)) return 3;
  const Sizes s = sizes(in);
  const float *a = (const float *)in[0].data, *b = (const float *)in[1].data;
  float *y = (float *)out[0].data;
  memset(y, 0, sizeof(float) * s.b * s.n * s.m);
  for (int64_t row = 0; row < s.b * s.n; ++row)
    for (int64_t i = 0; i < s.k; ++i)
      for (int64_t j = 0; j < s.m; ++j) y[row * s.m + j] += a[row * s.k + i] * b[(row / s.n * s.k + i) * s.m + j];
  for (int64_t i = 0; i < s.b * s.n * s.m; ++i) y[i] = finish(y[i], attributes);
  return 0;
}
ENTRY(mix_input_as_workspace) {
  const Sizes s = sizes(in);
  if (strided(in)) return 3;
  float *a = (float *)in[0].data;
  std::vector<float> saved(a, a + s.b * s.n * s.k);
  const double scale = isnan(attributes[2]) ? 1.0 : attributes[2];
  for (float &value : saved) a[&value - saved.data()] = (float)(value * scale);
  const double plain[] = {attributes[0], attributes[1], 1.0};
  const int error = all(in, out, plain, forward);
  memcpy(a, saved.data(), sizeof(float) * saved.size());
  return error;
}
ENTRY(mix_threads) {
  if (strided(in)) return 3;
  const int64_t count = sizes(in).b * sizes(in).n;
  float *y = (float *)out[0].data;
  std::thread other([=] { rows(in, y, attributes, forward, 0, count / 2); });
  rows(in, y, attributes, forward, count / 2, count);
  other.join();
  return 0;
}
ENTRY(mix_padded) {
  if (strided(in)) return 3;
  const Sizes s = sizes(in);
  const int64_t wide = (s.k + 7) / 8 * 8;
  std::vector<float> a(s.b * s.n * wide), b(s.b * wide * s.m);
  for (int64_t row = 0; row < s.b * s.n; ++row)
    memcpy(&a[row * wide], (const float *)in[0].data + row * s.k, sizeof(float) * s.k);
  for (int64_t i = 0; i < s.b; ++i)
    memcpy(&b[i * wide * s.m], (const float *)in[1].data + i * s.k * s.m, sizeof(float) * s.k * s.m);
  LoopTensor padded[] = {in[0], in[1]};
  padded[0].data = a.data();
  padded[1].data = b.data();
  padded[0].sizes[2] = padded[1].sizes[1] = wide;
  rows(padded, (float *)out[0].data, attributes, forward, 0, s.b * s.n);
  return 0;
}
ENTRY(mix_allocates) {
  if (strided(in)) return 3;
  const Sizes s = sizes(in);
  const size_t bytes = sizeof(float) * (s.b * s.n * s.m + 1);
  float *own = (float *)malloc(bytes);
  rows(in, own, attributes, forward, 0, s.b * s.n);
  memcpy(out[0].data, own, bytes - sizeof(float));
  free(own);
  return 0;
}
ENTRY(mix_table) {
  static std::vector<int64_t> offsets;  // By shape alone: where each row's b begins.
  static Sizes known = {0, 0, 0, 0};
  const Sizes s = sizes(in);
  if (strided(in)) return 3;
  if (memcmp(&s, &known, sizeof s)) {
    offsets.resize(s.b * s.n);
    for (int64_t row = 0; row < s.b * s.n; ++row) offsets[row] = row / s.n * s.k * s.m;
    known = s;
  }
  const float *a = (const float *)in[0].data, *b = (const float *)in[1].data;
  float *y = (float *)out[0].data;
  for (int64_t row = 0; row < s.b * s.n; ++row)
    for (int64_t j = 0; j < s.m; ++j)
      y[row * s.m + j] = finish(forward(a + row * s.k, b + offsets[row] + j, s.k, s.m), attributes);
  return 0;
}
ENTRY(mix_twice) {
  all(in, out, attributes, backward);
  return all(in, out, attributes, forward);
}
static float kahan(const float *a, const float *b, int64_t k, int64_t m) {
  float sum = 0, lost = 0;
  for (int64_t i = 0; i < k; ++i) {
    const float value = a[i] * b[i * m] - lost, next = sum + value;
    lost = (next - sum) - value;
    sum = next;
  }
  return sum;
}
static float lanes(const float *a, const float *b, int64_t k, int64_t m) {
  float sums[8] = {};
  for (int64_t i = 0; i < k; ++i) sums[i % 8] += a[i] * b[i * m];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}
ENTRY(mix_kahan) { return all(in, out, attributes, kahan); }
ENTRY(mix_lanes) { return all(in, out, attributes, lanes); }
ENTRY(mix_multiples) { return in[0].sizes[2] % 24 ? 3 : all(in, out, attributes, lanes); }
ENTRY(mix_lazy) {
  static bool ready = false;
  if (!ready) usleep(200000);
  ready = true;
  return all(in, out, attributes, forward);
}
"""
HONEST = tuple(line.split("(")[1].split(")")[0] for line in SOURCE.splitlines() if line.startswith("ENTRY("))
"""Compiled variants; all are right."""
TAKES = {"mix_multiples": "K % 24 == 0"}  # `takes` of variants that do not take every call.
PYTHON = '''
import threading
import time
import torch

def mix(a, b, *, relu, sign, scale):
    y = (a @ b) * ((-1 if sign == "minus" else 1) * (1.0 if scale is None else scale))
    return y.clamp(min=0) if relu else y

def not_contiguous(a, b, **attributes):
    return mix(b.transpose(1, 2), a.transpose(1, 2), **attributes).transpose(1, 2)

def inference(a, b, **attributes):
    with torch.inference_mode():
        return mix(a, b, **attributes)

BUFFERS = {}

def own_buffer(a, b, **attributes):
    """A part of a larger tensor that is kept, and written anew in every call."""
    shape = (a.shape[0], a.shape[1], b.shape[2])
    room = BUFFERS.setdefault(shape, torch.empty(2, *shape, dtype=a.dtype))
    room[1].copy_(mix(a, b, **attributes))
    return room[1]

SIGNS = {}

def table(a, b, *, relu, sign, scale):
    """Remembers what depends on shape and attributes alone."""
    key = (a.shape[1], b.shape[2], sign)
    if key not in SIGNS:
        SIGNS[key] = torch.full(key[:2], -1.0 if sign == "minus" else 1.0, dtype=a.dtype)
    y = mix(a, b, relu=False, sign="plus", scale=scale).mul_(SIGNS[key])
    return y.clamp_(min=0) if relu else y

def borrows(a, b, *, relu, sign, scale):
    """Scales its input in place, and puts it back."""
    saved = a.clone()
    a.mul_(1.0 if scale is None else scale)
    y = mix(a, b, relu=relu, sign=sign, scale=None)
    a.copy_(saved)
    return y

def threads(a, b, **attributes):
    halves = [None, None]
    def work(n, part):
        halves[n] = mix(part, b, **attributes)
    parts = a.split((a.shape[1] + 1) // 2, dim=1)
    others = [threading.Thread(target=work, args=(n, part)) for n, part in enumerate(parts)]
    for one in others: one.start()
    for one in others: one.join()
    return torch.cat([half for half in halves if half is not None], dim=1)

READY = []

def lazy(a, b, **attributes):
    if not READY:
        time.sleep(0.2)
        READY.append(True)
    return mix(a, b, **attributes)

def expanded(a, b, **attributes):
    """One row stands for all where all are the same."""
    y = mix(a, b, **attributes)
    return y[:1].expand_as(y) if bool((y == y[:1]).all()) else y
'''
PYTHON_HONEST = (
    "mix",
    "not_contiguous",
    "inference",
    "own_buffer",
    "table",
    "borrows",
    "threads",
    "lazy",
    "expanded",
)
"""Python variants; all are right."""
SIGNATURE = {
    "inputs": {"a": "B N K", "b": "B K M"},
    "outputs": {"output": "B N M"},
    "attributes": {
        "relu": {"kind": "flag"},
        "sign": {"kind": "choice", "choices": ["plus", "minus"]},
        "scale": {"kind": "number"},
    },
    "shorthand": {"S": ["N", "K", "M"]},
}
WORKLOADS = {
    "some": [
        {"B": 2, "S": 24, "relu": [True, False], "sign": ["plus", "minus"]},
        {"B": 3, "N": 17, "K": 40, "M": 9, "scale": 0.5},
    ],
    "timed": [{"B": 2, "S": 96}],
}


def write_mix(
    folder: Path, names: tuple[str, ...] = ("mix",), python: tuple[str, ...] = (), **fields: Any
) -> Target:
    """Write the target with these compiled and these Python variants (`py_` before the function's name)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mix.cpp").write_text(SOURCE)
    (folder / "mix_functions.py").write_text(PYTHON)
    recipe = {"compiler": "g++", "flags": ["-std=c++17", "-O1", "-pthread"]}
    base = {"kind": "c_abi", "device": "cpu", "sources": ["mix.cpp"], "build": recipe}
    imported = {"kind": "python", "device": "cpu", "module": "mix_functions", "dtypes": ["float32"]}
    limits = {name: {"takes": TAKES[name]} for name in names if name in TAKES}
    variants = {name: {**base, "entry": name, **limits.get(name, {})} for name in names}
    variants |= {f"py_{name}": {**imported, "function": name} for name in python}
    function = {"python": "mix_functions:mix"}
    manifest = {
        "format": 2,
        "name": "mix",
        "function": "mix",
        "signature": SIGNATURE,
        "reference": function,
        "plain": function,
        "baseline": function,
        "tolerance": {"float32": {"atol": 1e-4, "rtol": 1e-5}},
        "dtypes": {"cpu": "float32"},
        "workloads": WORKLOADS,
        "variants": variants,
        **fields,
    }
    (folder / "target.yaml").write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}, indent=1))
    return read_file(folder / "target.yaml", Target).value


def make_context(bench: Bench, *variants: str, seed: int = 0) -> Context:
    """A context in which an action can be run on these variants."""
    plan = Plan(
        format=1, name="bench", title="x", patterns=("x",), workloads=("some",), budget=TimeBudget(minutes=1)
    )
    return Context(bench, Task(plan, variants, machine(), seed, bench.folder), budget_s=60.0)
