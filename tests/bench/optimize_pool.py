"""The pool of `optimize_live`: kernels that start slower than necessary, and patches of known worth.

The `faster` patches were timed on an AMD EPYC with AVX-512, in turns, by the best of hundreds of calls.
rms: 1.29x to 1.34x (one division), 1.27x (two sums). softmax: 1.33x (each exponential once), 1.08x (two maxima).
cpu: 1.24x to 1.37x (rows), 1.11x to 1.19x (keys), 1.01x to 1.04x (maximum). Each by itself.

A patch is text that is replaced. `faster` undoes what made the kernel slow. `neutral` changes what runs once a
call, or nothing that counts. `layout` moves code about. `wrong`, `cheat`, `hang` and `fork` may never be kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from loop.base.places import shipped

TARGET = """
format: 2
name: {name}
function: {name}
signature: {{inputs: {{x: N M}}, outputs: {{output: N M}}}}
reference: {{python: "functions:{name}"}}
baseline: {{python: "functions:{name}"}}
tolerance: {{float32: {{atol: 1.0e-5, rtol: 1.0e-5}}}}
dtypes: {{cpu: float32}}
workloads:
  timed: [{{N: 64, M: 512}}, {{N: 200, M: 300}}]
  edges: [{{N: 1, M: [1, 7, 33]}}, {{N: 3, M: 65}}]
  held: [{{N: 128, M: 384}}]
variants:
  ours: {{kind: c_abi, device: cpu, sources: [kernel.cpp], entry: {name}, build: {{compiler: g++, flags: [-O2]}}}}
"""
HEAD = """#include <cmath>
#include <cstring>
#include <thread>
#include "loop_kernel.h"
LOOP_EXPORT const char *loop_error(int error) { return error == 1 ? "not contiguous float32" : "unknown"; }
LOOP_EXPORT int NAME(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  if (in[0].dtype != LOOP_FLOAT32 || in[0].strides[0] != in[0].sizes[1]) return 1;
  const int64_t rows = in[0].sizes[0], m = in[0].sizes[1];
  const float *x = static_cast<const float *>(in[0].data);
  float *y = static_cast<float *>(out[0].data);
  for (int64_t i = 0; i < rows; i++, x += m, y += m) {
"""
RMS = """    double sum = 0;
    for (int64_t j = 0; j < m; j++) sum += (double)x[j] * x[j];
    const float root = std::sqrt((float)(sum / m) + 1e-6f);
    for (int64_t j = 0; j < m; j++) y[j] = x[j] / root;
  }
  return 0;
}
"""
SOFTMAX = """    float highest = -INFINITY;
    for (int64_t j = 0; j < m; j++) highest = std::fmax(highest, x[j]);
    float sum = 0;
    for (int64_t j = 0; j < m; j++) sum += std::exp(x[j] - highest);
    for (int64_t j = 0; j < m; j++) y[j] = std::exp(x[j] - highest) / sum;
  }
  return 0;
}
"""
FUNCTIONS = {
    "rms": "def rms(x):\n    return x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt()\n",
    "softmax": "def softmax(x):\n    return x.softmax(-1)\n",
}
PLAN = """
format: 1
name: live
title: A campaign of the bench
patterns: [single-compilation-unit, mathematical-gates, baseline-first, {tuning}profile-before-optimise]
workloads: [{timed}]
checks: [edges]
budget: {{minutes: 3}}
"""


@dataclass(frozen=True)
class Patch:
    """One change that a proposer makes."""

    kind: str
    idea: str
    file: str
    texts: tuple[tuple[str, str], ...] = ()
    """Pairs of old and new text; each old text occurs once."""


@dataclass(frozen=True)
class Kernel:
    """The target of a campaign, and its patches."""

    name: str
    variant: str
    files: Mapping[str, str]
    """Path to content: files written over the copy of `copied`, or into an empty folder."""
    patches: tuple[Patch, ...]
    timed: str = "timed"
    copied: str | None = None
    """A folder of this repository that the target is a copy of."""


SOURCE, BLOCK, SCHEDULE = "kernel.cpp", "cpu/block.h", "cpu/schedule.h"
ENDLESS = "  for (volatile int go = 1; go;) {}\n"
ENTRY = "  const float *x = static_cast"
PAD = "__attribute__((used)) static int pad(int a) { for (int i = 0; i < 9; i++) a = a * 7 + i; return a; }\n"
SAME_INPUT = (
    "  static const void *last; static float first;\n"
    "  if (last == in[0].data && first == *(const float *)last) return 0;\n"
    "  last = in[0].data; first = *(const float *)last;\n"
)


def edit(kind: str, idea: str, file: str, old: str, new: str) -> Patch:
    """A patch that replaces one text."""
    return Patch(kind, idea, file, ((old, new),))


ANYWHERE = (
    edit("cheat", "a tolerance of one's own", "target.yaml", "atol: 1.0e-5", "atol: 1.0e+5"),
    Patch("hang", "the proposer does not end", ""),
    Patch("fork", "children that stay, and no edit", ""),
)
"""Patches that fit every kernel."""


def _small(name: str, body: str, extra: tuple[Patch, ...]) -> Kernel:
    """A kernel of one page, with its own patches and those that fit every such kernel."""
    source = HEAD.replace("NAME", name) + body
    error = next(line for line in source.splitlines() if "loop_error" in line)
    common = (
        edit("neutral", "the message of an error", SOURCE, '"unknown"', '"no such error"'),
        edit("neutral", "one more check", SOURCE, ENTRY, "  if (rows < 0) return 1;\n" + ENTRY),
        edit(
            "neutral",
            "the checks in another order",
            SOURCE,
            "in[0].dtype != LOOP_FLOAT32 || in[0].strides[0] != in[0].sizes[1]",
            "in[0].strides[0] != in[0].sizes[1] || in[0].dtype != LOOP_FLOAT32",
        ),
        edit("layout", "a comment", SOURCE, "#include <cmath>", "// Rows.\n#include <cmath>"),
        Patch(
            "layout",
            "functions in another order",
            SOURCE,
            ((error + "\n", ""), ("  return 0;\n}\n", "  return 0;\n}\n" + error + "\n")),
        ),
        edit("layout", "unused code before the kernel", SOURCE, error, PAD + error),
        edit(
            "wrong",
            "the last column of long rows is left out",
            SOURCE,
            "j < m; j++) y[j]",
            "j < m - (m > 256); j++) y[j]",
        ),
        edit("wrong", "every row but the last", SOURCE, "i < rows", "i < rows - (rows > 100)"),
        edit("cheat", "the same input is not computed again", SOURCE, ENTRY, SAME_INPUT + ENTRY),
        Patch(
            "cheat",
            "a thread that ends later",
            SOURCE,
            (
                ("  for (int64_t i = 0;", "  std::thread([=]() mutable {\n  for (int64_t i = 0;"),
                ("  return 0;\n}", "  }).detach();\n  return 0;\n}"),
            ),
        ),
        edit("hang", "the kernel does not end", SOURCE, ENTRY, ENDLESS + ENTRY),
        *ANYWHERE,
    )
    files = {"kernel.cpp": source, "functions.py": FUNCTIONS[name], "target.yaml": TARGET.format(name=name)}
    return Kernel(name, "ours", files, extra + common)


def _cpu() -> Kernel:
    """The bundled variant, without three of its ideas; each comes back by a patch."""
    folder = shipped("kernels") / "attention" / "cpu"
    names = ("block.h", "softmax.h", "products.h", "schedule.h", "bindings.cpp")
    text = {name: (folder / name).read_text() for name in names}
    tile = "std::min(256, ATTENTION_SCORES_KB * 1024 / (kBlockRows * 4) / 8 * 8)"
    weighing = text["softmax.h"]
    begin = weighing.index("  for (int j = 0; j < seen; j += 4) {\n    const float *const from")
    pairs = weighing[begin : weighing.index("  max = larger(weights.scaled")]
    singly = "  for (int j = 0; j < seen; j++) max = larger(load(scores + j * lanes), max);\n"
    slow = {
        "cpu/block.h": text["block.h"].replace(f"= {tile};", "= 8;"),
        "cpu/softmax.h": weighing.replace(pairs, singly),
        "cpu/products.h": text["products.h"].replace("? 8 : 4;", "? 2 : 2;"),
    }
    one_way = "  static const void *last; if (last == problem.q) return true; last = problem.q;\n"
    where = "  const int64_t heads = problem.batches * problem.heads;"
    patches = (
        edit("faster", "more keys between two updates of the top", BLOCK, "= 8;", f"= {tile};"),
        edit("faster", "the maximum of four keys at a time", "cpu/softmax.h", singly, pairs),
        edit("faster", "more rows in registers", "cpu/products.h", "? 2 : 2;", "? 8 : 4;"),
        edit("neutral", "where a second thread begins to pay", SCHEDULE, "2.5e5", "2.6e5"),
        edit(
            "neutral", "one more check a call", SCHEDULE, where, "  if (problem.depth < 0) return false;\n" + where
        ),
        edit(
            "neutral",
            "sums begin in a loop",
            BLOCK,
            "std::fill_n(block.sum, lanes, 0.0f)",
            "for (int i = 0; i < lanes; i++) block.sum[i] = 0.0f",
        ),
        edit(
            "neutral",
            "the logarithm in double",
            "cpu/attention.h",
            "std::log2(static_cast<float>(",
            "std::log2(static_cast<double>(",
        ),
        edit("layout", "a comment", SCHEDULE, "#pragma once", "// Threads.\n#pragma once"),
        edit(
            "layout",
            "unused code before the kernel",
            SCHEDULE,
            "namespace attention {\n",
            "namespace attention {\n" + PAD,
        ),
        edit(
            "wrong",
            "sums are not rescaled",
            "cpu/softmax.h",
            "load(running_sum) * decay[0] + sum",
            "load(running_sum) + sum",
        ),
        edit("wrong", "one key too many", BLOCK, "(visible - first, 0)", "(visible + 1 - first, 0)"),
        edit("cheat", "the same input is not computed again", SCHEDULE, where, one_way + where),
        edit("hang", "the kernel does not end", SCHEDULE, where, ENDLESS + where),
        *ANYWHERE,
    )
    return Kernel("cpu", "cpu", slow, patches, timed="quick", copied="attention")


def pool() -> tuple[Kernel, ...]:
    """The kernels, each with its patches."""
    rms = (
        Patch(
            "faster",
            "one division a row",
            SOURCE,
            (
                ("/ root;\n  }", "* inverse;\n  }"),
                ("    const float root", "    float inverse;\n    const float root"),
                ("+ 1e-6f);\n", "+ 1e-6f);\n    inverse = 1 / root;\n"),
            ),
        ),
        edit(
            "faster",
            "two sums",
            SOURCE,
            "for (int64_t j = 0; j < m; j++) sum += (double)x[j] * x[j];",
            "double odd = 0;\n    int64_t k = 0;\n    for (; k + 2 <= m; k += 2)\n"
            "      sum += (double)x[k] * x[k], odd += (double)x[k + 1] * x[k + 1];\n"
            "    if (k < m) sum += (double)x[k] * x[k];\n    sum += odd;",
        ),
        edit(
            "neutral",
            "the output in fours",
            SOURCE,
            "    for (int64_t j = 0; j < m; j++) y[j]",
            "#pragma GCC unroll 4\n    for (int64_t j = 0; j < m; j++) y[j]",
        ),
        edit("neutral", "no division once a row", SOURCE, "sum / m)", "sum * (1.0 / m))"),
    )
    softmax = (
        Patch(
            "faster",
            "each exponential once",
            SOURCE,
            (
                ("sum += std::exp(x[j] - highest);", "sum += y[j] = std::exp(x[j] - highest);"),
                ("y[j] = std::exp(x[j] - highest) / sum", "y[j] = y[j] / sum"),
            ),
        ),
        edit(
            "faster",
            "two maxima",
            SOURCE,
            "for (int64_t j = 0; j < m; j++) highest = std::fmax(highest, x[j]);",
            "float other = -INFINITY;\n    int64_t k = 0;\n    for (; k + 2 <= m; k += 2)\n"
            "      highest = std::fmax(highest, x[k]), other = std::fmax(other, x[k + 1]);\n"
            "    if (k < m) highest = std::fmax(highest, x[k]);\n    highest = std::fmax(highest, other);",
        ),
        edit(
            "neutral",
            "a product for a division",
            SOURCE,
            "std::exp(x[j] - highest) / sum",
            "std::exp(x[j] - highest) * (1 / sum)",
        ),
        edit("neutral", "the maximum begins at the first", SOURCE, "= -INFINITY", "= x[0]"),
    )
    return _small("rms", RMS, rms), _small("softmax", SOFTMAX, softmax), _cpu()
