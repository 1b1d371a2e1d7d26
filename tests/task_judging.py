"""Examples of targets of format 2 with a judging rule of their own, or in several languages."""

from dataclasses import dataclass, field
from typing import Any

FLOAT = {"float32": {"atol": 1.0e-5, "rtol": 1.0e-5}}


@dataclass(frozen=True)
class Example:
    """One target: its Python file and the rest of its manifest."""

    code: str
    """The Python file: `make` generates inputs, `right` is a right variant, `reference` the reference."""
    wrong: dict[str, str]
    """Other variants: name to the cause that the gate gives; empty for a right one."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Further fields of the manifest."""
    workloads: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    function: dict[str, Any] = field(default_factory=dict)
    """Further fields of each Python variant."""
    compiled: dict[str, str] = field(default_factory=dict)
    """Variants in C: name to cause, as in `wrong`."""

    @property
    def others(self) -> dict[str, str]:
        """All variants but the first, with the cause that the gate gives."""
        return {**self.wrong, **self.compiled}


PARTLY = Example(
    code="""
import torch

def make(N, seed):
    return [torch.rand(N, generator=torch.Generator().manual_seed(seed)) + 1]

def reference(x):
    return x * x

def right(x):
    y = x * x
    y[:2] += 0.05
    return y

def three_outliers(x):
    y = x * x
    y[:3] += 0.05
    return y

def one_far_off(x):
    y = x * x
    y[0] += 1
    return y
""",
    wrong={"three_outliers": "elements", "one_far_off": "elements"},
    fields={
        "signature": {"sizes": ["N"]},
        "tolerance": {"float32": {"atol": 1e-5, "rtol": 1e-5, "matched": 0.98, "cap": 0.1}},
    },
    workloads=[{"N": 100}],
)
SAMPLING = Example(
    code="""
import torch

def make(N, V, seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.softmax(torch.randn(N, V, generator=draw), -1)]

def reference(p):
    return p.argmax(-1)

def right(p):
    return p.argsort(-1)[:, -2]

def least(p):
    return p.argmin(-1)

def check(inputs, samples):
    (p,) = inputs
    rank = (p > p.gather(1, samples[:, None])).sum(-1)
    return bool((rank < 3).all()), f"a sample of rank {int(rank.max())}"
""",
    wrong={"least": "checker"},
    fields={"signature": {"sizes": ["N", "V"]}, "checker": {"python": "sampling:check", "alone": True}},
    workloads=[{"N": 5, "V": 17}],
)
BESIDE = Example(
    code=PARTLY.code.replace("def right", "def loose").replace("def three_outliers", "def right_but_unlucky")
    + """
def right(x):
    return x.square()

def check(data, output):
    assert (output >= 1).all(), "a square of what is above 1 is above 1"
""",
    wrong={"one_far_off": "elements"},
    fields={"signature": {"sizes": ["N"]}, "checker": {"python": "beside:check"}},
    workloads=[{"N": 100}],
)
NARROW = Example(
    code="""
import torch

def make(N, seed):
    x = torch.randn(N, generator=torch.Generator().manual_seed(seed)).clamp(-2, 2)
    return x.to(torch.float8_e4m3fn), torch.tensor(0.5)

def reference(x, scale):
    wide = x.to(scale.dtype) * scale
    return wide, (wide * 2).to(torch.float8_e5m2)

def right(x, scale):
    wide = x.float() * scale
    return wide, (2 * wide).to(torch.float8_e5m2)

def another_scale(x, scale):
    wide, _ = right(x, scale)
    return wide, (2.5 * wide).to(torch.float8_e5m2)
""",
    wrong={"another_scale": "elements"},
    fields={
        "signature": {"sizes": ["N"], "outputs": {"wide": "...", "narrow": "..."}},
        "tolerance": {**FLOAT, "float8_e5m2": {"atol": 0.0, "rtol": 0.13}},
    },
    workloads=[{"N": 64}],
)
GATHER_C = r"""
#include <stdint.h>
#include <string.h>
#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int error) { return "takes int64 ids and a float32 table, contiguous"; }

static int gather(const LoopTensor *in, LoopTensor *out, int64_t first) {
  if (in[0].dtype != LOOP_INT64 || in[1].dtype != LOOP_FLOAT32 || out[1].dtype != LOOP_INT32) return 1;
  const int64_t *ids = (const int64_t *)in[0].data, width = in[1].sizes[1];
  float *rows = (float *)out[0].data;
  int32_t *counts = (int32_t *)out[1].data;
  memset(counts, 0, sizeof(int32_t) * out[1].sizes[0]);
  for (int64_t i = 0; i < in[0].sizes[0]; i++) {
    memcpy(rows + i * width, (const float *)in[1].data + ids[i] * width, sizeof(float) * width);
    if (i >= first) counts[ids[i]]++;
  }
  return 0;
}

#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *at, void *stream)
ENTRY(right_in_c) { return gather(in, out, 0); }
ENTRY(loses_the_first) { return gather(in, out, 1); }
ENTRY(overflows) {
  int failed = gather(in, out, 0);
  ((float *)out[0].data)[out[0].sizes[0] * out[0].sizes[1] + 1] = 1;
  return failed;
}
"""
GATHER_PY = """
import array, json, os
call = json.load(open(os.environ["LOOP_CALL"]))
ids, table = (array.array(kind, open(one["path"], "rb").read()) for kind, one in zip("qf", call["inputs"]))
rows, counts = call["parts"]
width, found = rows["shape"][1], array.array("i", [0] * counts["shape"][0])
gathered = array.array("f")
for at in ids:
    gathered.extend(table[at * width : (at + 1) * width])
    found[at] += 1
open(rows["path"], "wb").write(gathered.tobytes())
open(counts["path"], "wb").write(found.tobytes())
"""
GATHER = Example(
    code="""
import torch

def make(V, D, N, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(V, (N,), generator=draw), torch.randn(V, D, generator=draw)

def right(ids, table):
    return torch.nn.functional.embedding(ids, table), torch.bincount(ids, minlength=len(table)).int()

def reference(ids, table):
    return table[ids], torch.bincount(ids, minlength=len(table)).int()
""",
    wrong={},
    compiled={"right_in_c": "", "loses_the_first": "elements", "overflows": "outside"},
    fields={
        "signature": {
            "inputs": {"ids": "N", "table": "V D"},
            "outputs": {"rows": "N D", "counts": "V"},
            "types": {"ids": "int64", "counts": "int32"},
        },
    },
    workloads=[{"V": 4, "D": 3, "N": 7}],
)  # fmt: skip
