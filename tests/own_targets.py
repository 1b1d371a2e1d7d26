"""Targets as people write them for kernels of their own: a manifest, a C++ variant and a PyTorch one.

Tolerances are those of docs/own-kernel.md; workloads and sizes are what one tries first. Nothing here is made
to please the gate.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOLERANCE = {
    "float32": {"atol": 1.0e-6, "rtol": 1.0e-6},
    "float16": {"atol": 1.0e-3, "rtol": 1.0e-3},
    "bfloat16": {"atol": 1.0e-2, "rtol": 1.0e-2},
}
HEAD = r"""
#include <cmath>
#include <cstdint>
#include <algorithm>
#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int) { return "inputs must be contiguous float32"; }

static bool contiguous(const LoopTensor &t) {
  int64_t step = 1;
  for (int d = t.rank - 1; d >= 0; step *= t.sizes[d--])
    if (t.sizes[d] > 1 && t.strides[d] != step) return false;
  return t.dtype == LOOP_FLOAT32;
}
"""


@dataclass(frozen=True)
class UserTarget:
    """One target: what it computes, in C++ and in PyTorch."""

    inputs: dict[str, str]
    output: str
    reference: str
    """Body of the reference, which is also the baseline."""
    eager: str
    """Body of the PyTorch variant."""
    loop: str
    """Body of the C++ variant: inputs are `a`, `b`, ..., output `y`, sizes by their names, attributes `at`."""
    workloads: Sequence[dict[str, Any]]
    attributes: dict[str, Any] = field(default_factory=dict)
    edges: Sequence[dict[str, Any]] = ()


OWN = {
    "rmsnorm": UserTarget(
        inputs={"x": "N D", "weight": "D"},
        output="N D",
        attributes={"eps": {"kind": "number", "default": 1.0e-6}},
        reference="return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight",
        eager="return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, eps)",
        loop="""
  for (int64_t i = 0; i < N; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < D; ++j) sum += a[i * D + j] * a[i * D + j];
    const float r = 1 / std::sqrt(sum / D + (float)at[0]);
    for (int64_t j = 0; j < D; ++j) y[i * D + j] = a[i * D + j] * r * b[j];
  }""",
        workloads=[{"N": 64, "D": [256, 1024]}],
        edges=[{"N": [1, 3], "D": [1, 17, 100]}],
    ),
    "softmax": UserTarget(
        inputs={"x": "R C"},
        output="R C",
        reference="return torch.softmax(x, -1)",
        eager="e = torch.exp(x - x.amax(-1, keepdim=True))\n    return e / e.sum(-1, keepdim=True)",
        loop="""
  for (int64_t i = 0; i < R; ++i) {
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < C; ++j) top = std::max(top, a[i * C + j]);
    for (int64_t j = 0; j < C; ++j) sum += y[i * C + j] = std::exp(a[i * C + j] - top);
    for (int64_t j = 0; j < C; ++j) y[i * C + j] /= sum;
  }""",
        workloads=[{"R": 32, "C": [512, 4096]}],
        edges=[{"R": [1, 5], "C": [1, 9]}, {"R": 8, "C": 64, "values": "wide"}],
    ),
    "matmul": UserTarget(
        inputs={"a": "M K", "b": "K N"},
        output="M N",
        reference="return a @ b",
        eager="return torch.matmul(a, b)",
        loop="""
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += a[i * K + k] * b[k * N + j];
      y[i * N + j] = sum;
    }""",
        workloads=[{"M": 128, "K": [64, 1024], "N": 96}],
        edges=[{"M": [1, 5], "K": [1, 33], "N": 7}],
    ),
}
"""The kernels that most people write first."""


def write_own(folder: Path, name: str, **fields: Any) -> Path:
    """Write a target with the variants `in_c` and `eager`; its folder."""
    spec = OWN[name]
    folder.mkdir(parents=True, exist_ok=True)
    parameters = ", ".join([*spec.inputs, *(["*", *spec.attributes] if spec.attributes else [])])
    (folder / "functions.py").write_text(f"import torch\n\n\ndef {name}({parameters}):\n    {spec.reference}\n")
    (folder / "eager.py").write_text(f"import torch\n\n\ndef {name}({parameters}):\n    {spec.eager}\n")
    (folder / f"{name}.cpp").write_text(_source(name, spec))
    function = {"python": f"functions:{name}"}
    recipe = {"compiler": "g++", "flags": ["-std=c++17", "-O2"]}
    in_c = {"kind": "c_abi", "device": "cpu", "sources": [f"{name}.cpp"], "entry": name, "build": recipe}
    eager = {"kind": "python", "device": "any", "module": "eager", "function": name}
    manifest = {
        "format": 2,
        "name": name.replace("_", "-"),
        "function": name,
        "signature": {"inputs": spec.inputs, "outputs": {"output": spec.output}, "attributes": spec.attributes},
        "reference": function,
        "baseline": function,
        "tolerance": TOLERANCE,
        "dtypes": {"cpu": "float32", "cuda": "float16"},
        "workloads": {"quick": spec.workloads, "edges": spec.edges},
        "variants": {"in_c": in_c, "eager": eager},
        **fields,
    }
    (folder / "target.yaml").write_text(json.dumps(manifest, indent=1))
    return folder


def _source(name: str, spec: UserTarget) -> str:
    sizes = {dim: (n, at) for n, text in enumerate(spec.inputs.values()) for at, dim in enumerate(text.split())}
    lines = [f"  const int64_t {dim} = in[{n}].sizes[{at}];" for dim, (n, at) in sizes.items()]
    tensors = [f"  const float *{'abc'[n]} = (const float *)in[{n}].data;" for n in range(len(spec.inputs))]
    check = " || ".join(f"!contiguous(in[{n}])" for n in range(len(spec.inputs)))
    unused = "".join(f"  (void){name};\n" for name in ("at", *sizes))
    return (
        f"{HEAD}\nLOOP_EXPORT int {name}(const LoopTensor *in, LoopTensor *out, const double *at, void *) {{\n"
        f"  if ({check}) return 1;\n" + "\n".join([*lines, *tensors]) + f"\n{unused}"
        f"  float *y = (float *)out[0].data;\n  {spec.loop.strip()}\n  return 0;\n}}\n"
    )
