"""Targets of format 2, one of each kind that people write, each with a right variant and wrong ones."""

import json
import sys
from pathlib import Path
from typing import Any

from loop.library.definitions import read_file
from loop.model.target import Target
from tests.targets import compiled, importable
from tests.task_judging import BESIDE, FLOAT, GATHER, GATHER_C, GATHER_PY, NARROW, PARTLY, SAMPLING, Example

BACKWARD = Example(
    code="""
import torch

def make(N, M, seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(N, M, generator=draw) for _ in range(2)]

def reference(gradient, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = torch.nn.functional.gelu(x)
        return torch.autograd.grad(y, x, gradient)[0]

def right(gradient, x):
    density = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
    return gradient * (0.5 * (1 + torch.erf(x / 2**0.5)) + x * density)

def forgets_the_second_term(gradient, x):
    return gradient * 0.5 * (1 + torch.erf(x / 2**0.5))
""",
    wrong={"forgets_the_second_term": "elements"},
    fields={"signature": {"inputs": {"gradient": "N M", "x": "N M"}, "outputs": {"slope": "N M"}}},
    workloads=[{"N": 3, "M": 5}],
)
RESIDUAL = Example(
    code="""
import torch

def make(N, M, seed):
    draw = torch.Generator().manual_seed(seed)
    shapes = {"x": (N, M), "more": (N, M), "w": (M,)}
    return {name: torch.randn(*shape, generator=draw) for name, shape in shapes.items()}

def reference(x, more, w):
    total = x + more
    return {"normed": total * (total * total).mean(-1, keepdim=True).add(1e-6).rsqrt() * w, "total": total}

def right(x, more, w):
    total = x + more
    return torch.nn.functional.rms_norm(total, w.shape, w, 1e-6), total

def gives_the_residual_back(x, more, w):
    return torch.nn.functional.rms_norm(x + more, w.shape, w, 1e-6), more.clone()

def gives_one(x, more, w):
    return right(x, more, w)[0]
""",
    wrong={"gives_the_residual_back": "elements", "gives_one": "wrong result"},
    fields={
        "signature": {"outputs": {"normed": "...", "total": "..."}, "sizes": ["N", "M"]},
        "generator": {"python": "residual:make", "passes": "keywords"},
    },
    workloads=[{"N": 2, "M": 7}],
)
PASSED = Example(
    code=RESIDUAL.code
    + """
def written(x, more, w, normed, total):
    torch.add(x, more, out=total)
    normed.copy_(torch.nn.functional.rms_norm(total, w.shape, w, 1e-6))

def written_in_part(x, more, w, normed, total):
    written(x, more, w, normed, total)
    total[-1, -1] = float("nan")

def written_beyond(x, more, w, normed, total):
    written(x, more, w, normed, total)
    storage = normed.untyped_storage()
    normed.as_strided((1,), (1,), normed.storage_offset() + normed.numel()).fill_(1.0)
""",
    wrong={"written_in_part": "NaN"},
    fields={
        "signature": {
            "inputs": {"x": "N M", "more": "N M", "w": "M"},
            "outputs": {"normed": "N M", "total": "N M"},
        },
        "generator": {"python": "passed:make", "passes": "keywords"},
    },
    workloads=RESIDUAL.workloads,
    function={"passing": "passed"},
)
TOP_K = Example(
    code="""
import torch

def make(rows, columns, k, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=draw), k

def reference(x, k):
    return torch.topk(x, k)

def right(x, k):
    indices = x.argsort(dim=-1, descending=True)[:, :k]
    return x.gather(1, indices), indices

def off_by_one(x, k):
    values, indices = right(x, k)
    indices[-1, -1] = (indices[-1, -1] + 1) % x.shape[1]
    return values, indices

def narrow(x, k):
    values, indices = right(x, k)
    return values, indices.int()
""",
    wrong={"off_by_one": "elements", "narrow": "wrong result"},
    fields={"signature": {"sizes": ["rows", "columns", "k"]}},
    workloads=[{"rows": 3, "columns": 9, "k": 2}],
)
EMBEDDING = Example(
    code="""
import torch

def make(V, D, N, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(V, (N,), generator=draw), torch.randn(V, D, generator=draw)

def reference(ids, table):
    return table[ids]

def right(ids, table):
    return torch.nn.functional.embedding(ids, table)

def clamps(ids, table):
    return table[ids.clamp(max=len(table) - 2)]

def writes_ids(ids, table):
    found = table[ids]
    ids.zero_()
    return found
""",
    wrong={"clamps": "elements", "writes_ids": "changed input"},
    fields={
        "signature": {
            "inputs": {"ids": "N", "table": "V D"}, "outputs": {"rows": "N D"}, "types": {"ids": "int64"},
        },
        "tolerance": {"float32": {"atol": 0.0, "rtol": 0.0}},
    },
    workloads=[{"V": 4, "D": 3, "N": 32}],
)  # fmt: skip
QUANTISED = Example(
    code="""
import torch

def make(N, K, M, seed):
    draw = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-128, 128, shape, generator=draw).to(torch.int8) for shape in ((N, K), (K, M)))
    return a, b, torch.rand(M, generator=draw) * 5e-3 + 5e-3

def reference(a, b, scale):
    total = (a.double() @ b.double()).long()  # A GPU has no product of int64.
    return (total * scale).round().clamp(-128, 127).to(torch.int8), total.int()

def right(a, b, scale):
    total = (a.double() @ b.double()).int()
    return (total * scale).round().clamp(-128, 127).to(torch.int8), total

def saturates_early(a, b, scale):
    scaled, total = right(a, b, scale)
    return scaled.clamp(-100, 100), total

def sums_in_half(a, b, scale):
    total = (a.half() @ b.half()).int()
    return right(a, b, scale)[0], total
""",
    wrong={"saturates_early": "elements", "sums_in_half": "elements"},
    fields={
        "signature": {"outputs": {"scaled": "...", "total": "..."}, "sizes": ["N", "K", "M"]},
        "tolerance": {**FLOAT, "int8": {"atol": 1.0, "rtol": 0.0}},
    },
    workloads=[{"N": 4, "K": 64, "M": 5}],
)
CACHE_C = r"""
#include <string.h>
#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int error) { return "takes float32 and int32"; }

static int put(const LoopTensor *in, int64_t shift) {
  const int64_t width = in[0].sizes[1], slots = in[2].sizes[0] * in[2].sizes[1];
  if (in[0].dtype != LOOP_FLOAT32 || in[1].dtype != LOOP_INT32) return 1;
  for (int64_t i = 0; i < in[0].sizes[0]; i++) {
    const int64_t slot = (((const int32_t *)in[1].data)[i] + shift) % slots;
    memcpy((float *)in[2].data + slot * width, (const float *)in[0].data + i * width, sizeof(float) * width);
  }
  return 0;
}

#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *at, void *stream)
ENTRY(in_c) { return put(in, 0); }
ENTRY(next_in_c) { return put(in, 1); }
"""
CACHE = Example(
    code="""
import torch

def make(pages, size, D, N, seed):
    draw = torch.Generator().manual_seed(seed)
    cache = torch.randn(pages, size, D, generator=draw)
    slots = torch.randperm(pages * size, generator=draw)[:N].int()
    return torch.randn(N, D, generator=draw), slots, cache

def reference(keys, slots, cache):
    cache.view(-1, cache.shape[-1])[slots.long()] = keys

def right(keys, slots, cache):
    cache.view(-1, cache.shape[-1]).index_copy_(0, slots.long(), keys)

def in_a_copy(keys, slots, cache):
    right(keys, slots, cache.clone())

def next_slot(keys, slots, cache):
    right(keys, (slots + 1) % (cache.shape[0] * cache.shape[1]), cache)

def sorts_the_table(keys, slots, cache):
    right(keys, slots, cache)
    slots.copy_(slots.sort()[0])
""",
    wrong={"in_a_copy": "elements", "next_slot": "elements", "sorts_the_table": "changed input"},
    compiled={"in_c": "", "next_in_c": "elements"},
    fields={
        "signature": {
            "inputs": {"keys": "N D", "slots": "N", "cache": "pages size D"},
            "outputs": {"new_cache": "pages size D"},
            "updates": {"new_cache": "cache"},
            "types": {"slots": "int32"},
        }
    },
    workloads=[{"pages": 3, "size": 4, "D": 5, "N": 6}],
)
MODEL = Example(
    code="""
import torch

class reference(torch.nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = torch.nn.Linear(features, hidden)
        self.down = torch.nn.Linear(hidden, features)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

def make():
    return [torch.randn(4, 6)]

def sizes():
    return [6, 10]

class right(reference):
    def forward(self, x):
        return torch.addmm(self.down.bias, self.up(x).clamp(min=0), self.down.weight.t())

class forgets_the_bias(reference):
    def forward(self, x):
        return torch.relu(self.up(x)) @ self.down.weight.t()

class trains(reference):
    def forward(self, x):
        self.up.bias.mul_(0.5)
        return super().forward(x)

class keeps_its_answer(reference):
    def forward(self, x):
        if not hasattr(self, "answer"):
            self.answer = super().forward(x)
        return self.answer
""",
    wrong={"forgets_the_bias": "elements", "trains": "changed input", "keeps_its_answer": "later calls"},
    fields={"modules": {"arguments": {"python": "model.py:sizes"}}},
)
EXAMPLES = {
    "gather": GATHER,
    "backward": BACKWARD,
    "residual": RESIDUAL,
    "passed": PASSED,
    "top_k": TOP_K,
    "embedding": EMBEDDING,
    "quantised": QUANTISED,
    "cache": CACHE,
    "model": MODEL,
    "partly": PARTLY,
    "sampling": SAMPLING,
    "beside": BESIDE,
    "narrow": NARROW,
}


def write_task(folder: Path, name: str, **fields: Any) -> Target:
    """Write an example's manifest and its Python file of the same name; return the manifest."""
    example = EXAMPLES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(example.code)
    for stem, text in (("gather", GATHER_C), ("cache", CACHE_C)):
        (folder / f"{stem}.c").write_text(text)
    (folder / "gather_program.py").write_text(GATHER_PY)
    honest = "written" if name == "passed" else "right"
    in_python = {"device": "any", "module": name, **example.function}
    in_c = {"sources": [f"{name}.c"], "build": {"compiler": "gcc", "flags": ["-O1"]}}
    variants = {function: importable(function, **in_python) for function in (honest, *example.wrong)}
    variants |= {entry: compiled(entry, **in_c) for entry in example.compiled}
    manifest = {
        "format": 2,
        "name": name.replace("_", "-"),
        "function": name,
        "signature": {},
        "generator": {"python": f"{name}:make"},
        "reference": {"python": f"{name}:reference"},
        "baseline": {"python": f"{name}:reference"},
        "tolerance": FLOAT,
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {"some": example.workloads},
        "variants": variants,
        **example.fields,
    }
    if name == "gather":
        run = [sys.executable, "-S", "gather_program.py"]
        variants["program"] = {"kind": "command", "device": "cpu", "run": run}
    (folder / "target.yaml").write_text(json.dumps({**manifest, **fields}, indent=1))
    return read_file(folder / "target.yaml", Target).value
