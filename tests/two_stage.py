"""A small target in two stages: weighted means of values, with known mistakes; its stages are components.

mix(q, k, v)[b, i] is the mean of the v[b, j] weighed by exp(q[b, i] . k[b, j]); a causal query sees the keys up to
its own place from the end. Stage one makes a partial of each range of keys, stage two reduces them.
"""

import json
import re
from pathlib import Path
from typing import Any

from loop.library.definitions import read_file
from loop.model.target import Target
from loop.workers.bench import Bench
from tests.targets import open_bench

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <vector>
#include "loop_kernel.h"

enum Mistake {
  kNone, kSumTwice, kLong, kOdd, kNanRow, kLastSplit, kHalfWeights, kNoTail, kSometimes
};
const int kSplits = 3;

static bool packed(const LoopTensor &t) {
  int64_t step = 1;
  for (int i = t.rank; i-- > 0; step *= t.sizes[i]) if (t.sizes[i] > 1 && t.strides[i] != step) return false;
  return true;
}

// Rows of D + 2: sums, maximum, sum of weights.
static void partial(const LoopTensor *in, double *rows, int64_t splits, bool causal, int mistake) {
  const int64_t batch = in[0].sizes[0], queries = in[0].sizes[1], keys = in[1].sizes[1], depth = in[0].sizes[2];
  const float *q = (const float *)in[0].data, *k = (const float *)in[1].data, *v = (const float *)in[2].data;
  const int64_t range = (keys + splits - 1) / splits;
  for (int64_t p = 0; p < splits; p++)
    for (int64_t b = 0; b < batch; b++)
      for (int64_t i = 0; i < queries; i++) {
        double *row = rows + ((p * batch + b) * queries + i) * (depth + 2), top = -INFINITY, total = 0;
        for (int64_t d = 0; d < depth; d++) row[d] = 0;
        int64_t end = keys < (p + 1) * range ? keys : (p + 1) * range;
        if (causal && i + keys - queries + 1 < end) end = i + keys - queries + 1;
        for (int pass = 0; pass < 2; pass++)
          for (int64_t j = p * range; j < end; j++) {
            double x = 0;
            const float *query = q + (b * queries + i) * depth, *key = k + (b * keys + j) * depth;
            for (int64_t d = 0; d < depth; d++) x += (double)query[d] * key[d];
            if (pass == 0) { top = x > top ? x : top; continue; }
            const double weight = exp(mistake == kHalfWeights && j > 40 ? 0.5 * (x - top) : x - top);
            total += weight;
            for (int64_t d = 0; d < depth; d++) row[d] += weight * v[(b * keys + j) * depth + d];
          }
        row[depth] = top;
        row[depth + 1] = total;
      }
}

static void reduce(const double *rows, float *out, int64_t splits, int64_t cells, int64_t depth, int mistake) {
  for (int64_t c = 0; c < cells; c++) {
    double top = -INFINITY, total = 0;
    for (int64_t p = 0; p < splits; p++) top = fmax(top, rows[(p * cells + c) * (depth + 2) + depth]);
    std::vector<double> sums(depth, 0.0);
    for (int64_t p = 0; p < splits; p++) {
      const double *row = rows + (p * cells + c) * (depth + 2);
      const double weight = row[depth] == -INFINITY ? 0 : exp(row[depth] - top);
      total += weight * row[depth + 1] * (mistake == kSumTwice && p > 0 ? 2 : 1);
      for (int64_t d = 0; d < depth; d++) sums[d] += weight * row[d];
    }
    for (int64_t d = 0; d < depth; d++)
      out[c * depth + d] = (float)(total == 0 && mistake != kNanRow ? 0 : sums[d] / total);
  }
}

static int mix(const LoopTensor *in, LoopTensor *out, const double *attributes, int mistake) {
  for (int t = 0; t < 3; t++) if (!packed(in[t])) return 4;
  const int64_t batch = in[0].sizes[0], queries = in[0].sizes[1], keys = in[1].sizes[1], depth = in[0].sizes[2];
  const int64_t cells = batch * queries;
  std::vector<double> rows(kSplits * cells * (depth + 2));
  partial(in, rows.data(), kSplits, attributes[0] != 0, mistake);
  const bool last = mistake == kLastSplit && attributes[0] != 0;
  float *o = (float *)out[0].data;
  reduce(rows.data(), o, last ? kSplits - 1 : kSplits, cells, depth, mistake);
  static int calls = 0;
  for (int64_t c = 0; c < cells; c++)
    for (int64_t d = 0; d < depth; d++) {
      float &value = o[c * depth + d];
      if (mistake == kLong && keys >= 65) value += 1;
      if (mistake == kOdd && keys % 2) value += 1;
      if (mistake == kNoTail && keys % 16 && c % queries == 0) value += 1;
      if (mistake == kSometimes && ++calls > 40000) value += 1;
    }
  return 0;
}

#define ENTRY(name, mistake) \
  LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *attributes, void *) { \
    return mix(in, out, attributes, mistake); \
  }
ENTRY(right, kNone) ENTRY(sum_twice, kSumTwice) ENTRY(long_keys, kLong) ENTRY(odd, kOdd)
ENTRY(nan_row, kNanRow) ENTRY(last_split, kLastSplit) ENTRY(half_weights, kHalfWeights) ENTRY(no_tail, kNoTail)
ENTRY(sometimes, kSometimes)

#define PARTS(name, mistake) \
  LOOP_EXPORT int name##_partial(const LoopTensor *in, LoopTensor *out, const double *attributes, void *) { \
    partial(in, (double *)out[0].data, out[0].sizes[0], attributes[0] != 0, mistake); \
    return 0; \
  } \
  LOOP_EXPORT int name##_reduce(const LoopTensor *in, LoopTensor *out, const double *, void *) { \
    if (in[0].dtype != LOOP_FLOAT64 || out[0].dtype != LOOP_FLOAT32) return 3; \
    reduce((const double *)in[0].data, (float *)out[0].data, in[0].sizes[0], in[0].sizes[1] * in[0].sizes[2], \
           out[0].sizes[2], mistake); \
    return 0; \
  }
PARTS(right, kNone) PARTS(sum_twice, kSumTwice) PARTS(last_split, kLastSplit) PARTS(half_weights, kHalfWeights)

LOOP_EXPORT int right_doubled(const LoopTensor *in, LoopTensor *out, const double *attributes, void *stream) {
  right_partial(in, out, attributes, stream);
  const int64_t rows = out[0].sizes[0] * out[0].sizes[1] * out[0].sizes[2], columns = out[0].sizes[3];
  for (int64_t i = 0; i < rows * columns; i++)
    if (i % columns != columns - 2) ((double *)out[0].data)[i] *= 2;
  return 0;
}

LOOP_EXPORT const char *loop_error(int error) { return error == 3 ? "no such shape" : "not contiguous"; }
"""
ENTRIES = tuple(re.findall(r"\bENTRY\((\w+), k", SOURCE))
WITH_PARTS = ("right", "sum_twice", "last_split", "half_weights")
PYTHON = """
import math
import torch

def logits(q, k, causal):
    scores = q @ k.transpose(-1, -2)
    queries, keys = scores.shape[-2:]
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries if causal else keys)
    return scores.masked_fill(~seen, -math.inf)

def mix(q, k, v, *, causal):
    weights = torch.softmax(logits(q, k, causal), -1)
    return weights.nan_to_num(0.0) @ v if causal else weights @ v

def stages(scores, v, splits):
    length = -(-scores.shape[-1] // splits)
    rows = []
    for p in range(splits):
        part = scores[..., p * length : (p + 1) * length]
        nothing = part.new_full((*part.shape[:-1], 1), -math.inf)
        top = torch.cat([part, nothing], -1).amax(-1, keepdim=True)
        weights = torch.exp(part - top.masked_fill(top == -math.inf, 0))
        sums = weights @ v[..., p * length : (p + 1) * length, :]
        rows.append(torch.cat([sums, top, weights.sum(-1, keepdim=True)], -1))
    return torch.stack(rows)

def partial(q, k, v, *, causal, sizes):
    return stages(logits(q, k, causal), v, sizes["P"])

def mean_form(partials, **attributes):
    total = partials[..., -1:]
    return torch.cat([partials[..., :-2] / total.clamp(min=1e-30), partials[..., -2:-1], (total > 0) * 1.0], -1)

def reduce(partials):
    sums, top, total = partials[..., :-2], partials[..., -2:-1], partials[..., -1:]
    weights = torch.exp(top - top.amax(0)).nan_to_num(0.0)
    whole = (weights * total).sum(0)
    return (weights * sums).sum(0) / whole.masked_fill(whole == 0, 1)

def known_good(*, sizes, seed):
    draw = torch.Generator().manual_seed(seed)
    keys = 8 * sizes["P"]
    q, k, v = (torch.randn(sizes["B"], n, sizes["D"], generator=draw, dtype=torch.float64)
               for n in (sizes["Sq"], keys, keys))
    return (stages(logits(q, k, True), v, sizes["P"]),)
"""
WORKLOADS = {
    "some": [{"B": 2, "S": [16, 70, 96], "D": 8, "causal": [True, False]}, {"B": 1, "S": 65, "D": 128}],
    "wide": [{"B": 1, "S": 4, "D": [64, 128]}],
    "masked": [{"B": 2, "Sq": 9, "Sk": 4, "D": 8, "causal": True}],
}
SIGNATURE = {
    "inputs": {"q": "B Sq D", "k": "B Sk D", "v": "B Sk D"},
    "outputs": {"output": "B Sq D"},
    "attributes": {"causal": {"kind": "flag"}},
    "shorthand": {"S": ["Sq", "Sk"]},
    "words": {"Sq": "query rows", "D": "features"},
}


def components(name: str) -> dict[str, Any]:
    """The two stages of a variant; rows of a partial are in float64, whatever the workload's type."""
    partial = {
        "of": name,
        "title": "sums of each range of keys",
        "entry": f"{name}_partial",
        "signature": {**SIGNATURE, "outputs": {"output": "P B Sq W"}, "types": {"output": "float64"}, "words": {}},
        "reference": {"python": "stages:partial"},
        "workloads": [{"P": [1, 3], "B": 2, "S": 70, "D": 8, "W": 10, "causal": [True, False]}],
    }
    reduction = {
        "of": name,
        "title": "the ranges together",
        "entry": f"{name}_reduce",
        "signature": {
            "inputs": {"partials": "P B Sq W"},
            "outputs": {"output": "B Sq D"},
            "types": {"partials": "float64"},
        },
        "reference": {"python": "stages:reduce"},
        "inputs": {"python": "stages:known_good"},
        "workloads": [{"P": [1, 4], "B": 2, "Sq": 5, "D": 8, "W": 10}],
    }
    return {f"{name}_partial": partial, f"{name}_reduce": reduction}


def write_two_stage(folder: Path, *names: str, **fields: Any) -> Target:
    """Write the project with these variants, by default all; return the manifest."""
    chosen = names or tuple(ENTRIES)
    recipe = {"compiler": "g++", "flags": ["-std=c++17", "-O2"]}
    base = {"kind": "c_abi", "device": "cpu", "sources": ["stages.cpp"], "build": recipe}
    parts = [components(name) for name in chosen if name in WITH_PARTS]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stages.cpp").write_text(SOURCE)
    (folder / "stages.py").write_text(PYTHON)
    manifest = {
        "format": 2,
        "name": "two-stage",
        "function": "mix",
        "signature": SIGNATURE,
        "reference": {"python": "stages:mix"},
        "plain": {"python": "stages:mix"},
        "baseline": {"python": "stages:mix"},
        "tolerance": {"float32": {"atol": 1e-4, "rtol": 1e-4}},
        "dtypes": {"cpu": "float32"},
        "workloads": WORKLOADS,
        "variants": {name: {**base, "entry": name} for name in chosen},
        "components": {name: part for stages in parts for name, part in stages.items()},
    }
    (folder / "target.yaml").write_text(json.dumps({**manifest, **fields}, indent=1))
    return read_file(folder / "target.yaml", Target).value


def open_two_stage(folder: Path, cache: Path, *names: str) -> Bench:
    """A bench for the project in `folder`."""
    return open_bench(folder, write_two_stage(folder, *names), cache)
