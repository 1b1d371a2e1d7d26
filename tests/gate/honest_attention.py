"""Attention as people write it: other orders, other exponentials, other sums, declared limits; all of it right."""

import json
from pathlib import Path
from typing import Any

import yaml

from loop.library.definitions import find_project, read_file
from loop.model.target import Target
from tests.targets import FLAGS

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <algorithm>
#include <thread>
#include <vector>
#include <unistd.h>
#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int error) {
  return error == 5 ? "D has to be a multiple of 8" : "inputs have to be contiguous float32";
}

typedef float (*Exp2)(float);
static float library(float x) { return exp2f(x); }
static float through_exp(float x) { return expf(x * 0.69314718f); }
static float scaled(float y, float whole) { return whole < -126 ? 0 : ldexpf(y, (int)whole); }
static float cephes(float x) {  // A polynomial of degree 6 on half an octave either side.
  if (!(x > -127)) return x != x ? x : 0;
  const float whole = floorf(x + 0.5f), f = x - whole;
  float y = 1.535336188319500e-4f;
  for (float c : {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f, 2.402264791363012e-1f,
                  6.931472028550421e-1f, 1.0f}) y = y * f + c;
  return scaled(y, whole);
}

typedef float (*Dot)(const float *, const float *, int64_t);
static float forward(const float *a, const float *b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
static float lanes(const float *a, const float *b, int64_t n) {
  float sums[8] = {}, sum = 0;
  for (int64_t i = 0; i < n; ++i) sums[i % 8] += a[i] * b[i];
  for (float one : sums) sum += one;
  return sum;
}

struct Way { Exp2 exp2; Dot dot; bool backward, kahan, two_pass; int splits; };
struct Partial { float top = -INFINITY, sum = 0, lost = 0; std::vector<float> o, lo; };

static void add(float &sum, float &lost, float value, bool kahan) {
  if (!kahan) { sum += value; return; }
  const float corrected = value - lost, next = sum + corrected;
  lost = (next - sum) - corrected;
  sum = next;
}
static Partial range(const Way &way, const float *q, const float *k, const float *v, int64_t first, int64_t last,
                     int64_t d, float scale) {
  Partial p;
  p.o.assign(d, 0.0f);
  p.lo.assign(d, 0.0f);
  std::vector<float> x(last > first ? last - first : 0);
  for (int64_t j = first; j < last; ++j) x[j - first] = way.dot(q, k + j * d, d) * scale;
  if (way.two_pass) for (float one : x) p.top = one > p.top ? one : p.top;
  for (int64_t n = 0; n < last - first; ++n) {
    const int64_t j = way.backward ? last - 1 - n : first + n;
    const float one = x[j - first], top = one > p.top ? one : p.top;
    if (top != p.top) {
      const float by = p.top == -INFINITY ? 0 : way.exp2(p.top - top);
      p.sum *= by; p.lost *= by;
      for (int64_t c = 0; c < d; ++c) { p.o[c] *= by; p.lo[c] *= by; }
      p.top = top;
    }
    const float weight = way.exp2(one - (top == -INFINITY ? 0 : top));
    add(p.sum, p.lost, weight, way.kahan);
    for (int64_t c = 0; c < d; ++c) add(p.o[c], p.lo[c], weight * v[j * d + c], way.kahan);
  }
  return p;
}
static bool contiguous(const LoopTensor &t) {
  int64_t step = 1;
  for (int n = 3; n >= 0; step *= t.sizes[n--]) if (t.sizes[n] > 1 && t.strides[n] != step) return false;
  return t.dtype == LOOP_FLOAT32;
}
static int64_t keys_of(int64_t i, int64_t sq, int64_t sk, const double *at) {
  const int64_t last = i + 1 + (at[1] != 0 ? sk - sq : 0);
  return at[0] == 0 ? sk : std::max<int64_t>(0, std::min(sk, last));
}
static int attend(const Way &way, const LoopTensor *in, LoopTensor *out, const double *at) {
  if (!contiguous(in[0]) || !contiguous(in[1]) || !contiguous(in[2])) return 3;
  const int64_t heads = in[0].sizes[0] * in[0].sizes[1];
  const int64_t sq = in[0].sizes[2], d = in[0].sizes[3], sk = in[1].sizes[2];
  const float scale = (float)((isnan(at[2]) ? 1 / sqrt((double)d) : at[2]) * 1.4426950408889634);
  const float *q = (const float *)in[0].data, *k = (const float *)in[1].data, *v = (const float *)in[2].data;
  float *y = (float *)out[0].data;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < sq; ++i) {
      const int64_t seen = keys_of(i, sq, sk, at);
      Partial all;
      all.o.assign(d, 0.0f);
      for (int s = 0; s < way.splits; ++s) {
        Partial p = range(way, q + (h * sq + i) * d, k + h * sk * d, v + h * sk * d, seen * s / way.splits,
                          seen * (s + 1) / way.splits, d, scale);
        if (s == 0) { all = p; continue; }
        const float top = std::max(all.top, p.top), none = top == -INFINITY ? 0 : top;
        const float left = way.exp2(all.top - none), right = way.exp2(p.top - none);
        all.sum = all.sum * left + p.sum * right;
        for (int64_t c = 0; c < d; ++c) all.o[c] = all.o[c] * left + p.o[c] * right;
        all.top = top;
      }
      for (int64_t c = 0; c < d; ++c) y[(h * sq + i) * d + c] = seen ? all.o[c] / all.sum : 0;
    }
  return 0;
}

#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *at, void *)
ENTRY(online) { return attend({library, forward, false, false, false, 1}, in, out, at); }
ENTRY(polynomial_backwards) { return attend({cephes, forward, true, false, false, 1}, in, out, at); }
ENTRY(polynomial_two_pass) { return attend({cephes, lanes, false, false, true, 1}, in, out, at); }
ENTRY(exp_two_pass) { return attend({through_exp, forward, false, false, true, 1}, in, out, at); }
ENTRY(kahan) { return attend({library, forward, true, true, true, 1}, in, out, at); }
ENTRY(split) { return attend({cephes, lanes, false, false, false, 3}, in, out, at); }
ENTRY(lazy_tables) {
  static bool ready = false;
  if (!ready) usleep(200000);
  ready = true;
  return attend({cephes, forward, false, false, true, 1}, in, out, at);
}
ENTRY(multiples_of_8) {
  if (in[0].sizes[3] % 8) return 5;
  return attend({cephes, lanes, true, false, false, 1}, in, out, at);
}
"""
COMPILED = tuple(line.split("(")[1].split(")")[0] for line in SOURCE.splitlines() if line.startswith("ENTRY("))
"""Compiled variants; all are right."""
PYTHON = '''
import math
import torch


def _scores(q, k, causal, alignment, scale):
    """Logits in float32, and which keys are seen."""
    x = (q.float() @ k.float().mT) * (1 / math.sqrt(q.size(-1)) if scale is None else scale)
    seen = torch.ones(x.shape[-2:], dtype=torch.bool)
    if causal:
        seen = seen.tril(x.size(-1) - x.size(-2) if alignment == "bottom_right" else 0)
    return x.masked_fill(~seen, -math.inf), seen.any(-1, keepdim=True)


def _weights(x, seen):
    top = torch.cat([x, torch.full_like(x[..., :1], -math.inf)], -1).amax(-1, keepdim=True)
    return torch.exp(x - torch.where(top == -math.inf, torch.zeros_like(top), top))


def tensor_cores(q, k, v, *, causal, alignment, scale):
    """Sums in float32, weights rounded to the element type, divided at the end."""
    x, seen = _scores(q, k, causal, alignment, scale)
    w = _weights(x, seen)
    y = (w.to(q.dtype).float() @ v.float()) / w.sum(-1, keepdim=True)
    return torch.where(seen, y, torch.zeros_like(y)).to(q.dtype)


def exp2(q, k, v, *, causal, alignment, scale):
    """Powers of two in place of e, keys backwards."""
    x, seen = _scores(q, k.flip(-2), False, alignment, scale)
    if causal:
        shift = x.size(-1) - x.size(-2) if alignment == "bottom_right" else 0
        mask = torch.ones(x.shape[-2:], dtype=torch.bool).tril(shift).flip(-1)
        x, seen = x.masked_fill(~mask, -math.inf), mask.any(-1, keepdim=True)
    x = x * 1.4426950408889634
    top = torch.cat([x, torch.full_like(x[..., :1], -math.inf)], -1).amax(-1, keepdim=True)
    w = torch.exp2(x - torch.where(top == -math.inf, torch.zeros_like(top), top))
    y = (w @ v.flip(-2).float()) / w.sum(-1, keepdim=True)
    return torch.where(seen, y, torch.zeros_like(y)).to(q.dtype)


def normalised_first(q, k, v, **attributes):
    """Weights divided before they are multiplied, in float32."""
    x, seen = _scores(q, k, **attributes)
    w = _weights(x, seen)
    w = torch.where(seen, w / w.sum(-1, keepdim=True), torch.zeros_like(w))
    return (w @ v.float()).to(q.dtype)


def head_by_head(q, k, v, **attributes):
    if not q.is_contiguous():
        raise NotImplementedError("q has to be contiguous")
    heads = [tensor_cores(q[:, h], k[:, h], v[:, h], **attributes) for h in range(q.size(1))]
    return torch.stack(heads, 1) if heads else torch.zeros_like(q)


READY = []


def compiles_first(q, k, v, **attributes):
    if not READY:
        import time
        time.sleep(1.0)
        READY.append(True)
    return normalised_first(q, k, v, **attributes)
'''
PYTHON_NAMES = (*("tensor_cores", "exp2", "normalised_first"), *("head_by_head", "compiles_first"))
"""Python variants, in three element types; all are right."""
TAKES = {"multiples_of_8": "D % 8 == 0"}
SMALL = [
    {"B": 1, "H": 2, "S": 97, "D": 64, "causal": [True, False], "values": ["sharp", "one_hot", "huge_values"]},
    {"B": 1, "H": 2, "S": 80, "D": 64, "causal": True, "values": ["sharp", "huge_values"], "dtype": ["float16"]},
    {"B": 1, "H": 2, "S": 80, "D": 40, "values": ["normal", "nan_key"], "dtype": ["float16", "bfloat16"]},
    {"B": 1, "H": 1, "Sq": 33, "Sk": 77, "D": 7, "causal": True, "alignment": ["top_left", "bottom_right"]},
    {"B": 1, "H": 1, "S": 130, "D": 128, "values": "wide"},
    {"B": 2, "H": 2, "S": 200, "D": 32, "causal": True, "scale": -0.3},
]
"""Workloads of each seed."""


def write_attention(folder: Path, **fields: Any) -> Target:
    """The bundled target with these variants in place of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attention.cpp").write_text(SOURCE)
    (folder / "ways.py").write_text(PYTHON)
    recipe = {"compiler": "g++", "flags": [*FLAGS[:1], "-O2", "-pthread"]}
    base = {"kind": "c_abi", "device": "cpu", "sources": ["attention.cpp"], "build": recipe}
    imported = {"kind": "python", "device": "any", "module": "ways"}
    variants = {name: {**base, "entry": name} for name in COMPILED}
    variants |= {f"py_{name}": {**imported, "function": name} for name in PYTHON_NAMES}
    for name, takes in TAKES.items():
        variants[name]["takes"] = takes
    manifest = yaml.safe_load((find_project(None, folder).target / "target.yaml").read_text())
    for name in ("tuning", "components", "properties", "faults"):
        manifest.pop(name, None)
    manifest |= {"variants": variants, "workloads": {**manifest["workloads"], "small": SMALL}, **fields}
    (folder / "target.yaml").write_text(json.dumps(manifest, indent=1))
    return read_file(folder / "target.yaml", Target).value
