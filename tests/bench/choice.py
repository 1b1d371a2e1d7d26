"""`make bench-choice`: fit the costs by which `auto` picks a kernel, and say how often it picks the fastest.

On a GPU it times the kernels on shapes drawn at random and records them. A host program that includes `auto.cuh`
gives the five counts of each kernel and shape, so that kernel and fit share one formula. The fit itself needs no
GPU. It begins with the costs that fit the times best, and changes one number after another while picks get faster.
"""

import argparse
import ctypes
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import torch

from loop.base.places import include_folder, shipped
from loop.library.definitions import read_file
from loop.model.target import Target
from tests.bench.attention import Ours, Shape, draw_prefill, draw_shapes, libraries, random_row
from tests.conftest import ROOT

RECORDED = ROOT / "tests/bench/recorded/choice.json"
KERNELS = (
    *("tensor_core", "small", "decode", "split_k"),
    *("three groups", "two groups", "folded", "one group", "even"),
)
"""In the order of `costs.cuh`; the last five are `warp_specialized`."""
SIZES = (32, 64, 128, 256)  # Most features of each row of costs.
TERMS = 5
SHAPES = 2000  # To fit to; a quarter as many judge the fit.
DEVICE = "sm_90"  # Whose tuning the kernels have.
SEED, HELD_OUT = 400, 900  # Seeds of the shapes that are fitted to, and of those that judge the fit.
COUNTS = """
#include "auto.cuh"
template <int kDepth>
static void fill(const attention::Problem &problem, double *numbers) {
  const attention::Choice<kDepth> choice(problem);
  for (int number = 0; number < attention::kKernels; number++) {
    const auto kernel = static_cast<attention::Kernel>(number);
    const attention::Tiling &tiling = choice.tilings[kernel];
    const attention::Cost count = tiling.rows ? attention::counts(kernel, problem, tiling) : attention::Cost{0.0};
    const double values[] = {count.start, count.wave, count.chain, count.total, count.cut, choice.times[kernel]};
    for (double value : values) *numbers++ = value;
  }
}
static LoopTensor dense(int64_t batches, int64_t heads, int64_t rows, int64_t depth) {
  LoopTensor tensor = {};
  tensor.dtype = LOOP_FLOAT16, tensor.rank = 4;
  const int64_t sizes[] = {batches, heads, rows, depth};
  const int64_t strides[] = {heads * rows * depth, rows * depth, depth, 1};
  std::copy(sizes, sizes + 4, tensor.sizes), std::copy(strides, strides + 4, tensor.strides);
  return tensor;
}
extern "C" void shape_counts(const int *shape, double *numbers) {
  const int batches = shape[0], shared = shape[1], group = shape[2], queries = shape[3], keys = shape[4];
  const LoopTensor q = dense(batches, shared * group, queries, shape[5]);
  const LoopTensor k = dense(batches, shared, keys, shape[5]);
  const LoopTensor inputs[] = {q, k, k};
  const double attributes[] = {static_cast<double>(shape[6]), 0.0, NAN};
  attention::Problem problem = attention::describe(inputs, &q, attributes);
  attention::drop_hidden_keys(problem);
  const int depth = problem.depth;
  depth <= 32   ? fill<32>(problem, numbers)
  : depth <= 64 ? fill<64>(problem, numbers)
  : depth <= 96 ? fill<96>(problem, numbers)
  : depth <= 128 ? fill<128>(problem, numbers)
  : depth <= 192 ? fill<192>(problem, numbers)
                 : fill<256>(problem, numbers);
}
"""


def counts_of(shapes: Sequence[Shape], device: str) -> np.ndarray:
    """Shapes x kernels x (the five counts, today's estimate in microseconds)."""
    folder = shipped("kernels/attention")
    recipe = read_file(folder / "target.yaml", Target).value.emulated_variant("auto", device).build
    numbers = np.zeros((len(shapes), len(KERNELS), TERMS + 1))
    with tempfile.TemporaryDirectory() as scratch:
        source, library = Path(scratch) / "counts.cpp", Path(scratch) / "counts.so"
        source.write_text(COUNTS)
        emulator = include_folder().parent / "emulator"
        paths = [f"-I{path}" for path in (include_folder(), emulator, folder / "cuda")]
        command = [recipe.compiler, *recipe.flags, "-fPIC", "-shared", *paths, str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        fill = ctypes.CDLL(str(library)).shape_counts
        for shape, row in zip(shapes, numbers, strict=True):
            fill((ctypes.c_int * 7)(*map(int, shape)), row.ctypes.data_as(ctypes.c_void_p))
    return numbers


def times_of(shapes: Sequence[Shape], ours: dict[str, Ours]) -> list[list[float | None]]:
    """Shapes x kernels in microseconds; None where a kernel declines a shape."""
    rows = (random_row(shape, ours)["us"] for shape in shapes)

    def takes(kernel: str, shape: Shape) -> bool:
        return shape[5] <= 128 if kernel == "even" else shape[6] or kernel not in ("folded", "one group")

    return [
        [row.get(kernel) if takes(kernel, shape) else None for kernel in KERNELS]
        for shape, row in zip(shapes, rows, strict=True)
    ]


def as_times(us: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Times as an array, infinite where a kernel declines."""
    return np.array([[math.inf if time is None else time for time in row] for row in us])


def estimated(costs: np.ndarray, counts: np.ndarray, us: np.ndarray) -> np.ndarray:
    """Shapes x kernels in microseconds; infinite where a kernel declines, or `auto` does not consider it."""
    return np.where(np.isfinite(us) & (counts[..., 0] > 0), np.maximum((counts * costs).sum(axis=2), 1e-3), np.inf)


def over_fastest(estimates: np.ndarray, us: np.ndarray) -> np.ndarray:
    """Time of each shape's pick, as a multiple of the fastest kernel's time."""
    picked = np.take_along_axis(us, estimates.argmin(axis=1)[:, None], axis=1)[:, 0]
    return picked / us.min(axis=1)


def regret(costs: np.ndarray, counts: np.ndarray, us: np.ndarray) -> float:
    """The mean of log(time of the pick / time of the fastest), plus a little of how far estimates are off."""
    estimates = estimated(costs, counts, us)
    near = np.isfinite(estimates) & (us < 2 * us.min(axis=1, keepdims=True))
    off = np.abs(np.log(estimates[near] / us[near])).mean()
    return float(np.log(over_fastest(estimates, us)).mean() + 0.01 * off)


def fit(counts: np.ndarray, us: np.ndarray) -> np.ndarray:
    """Kernels x five costs in microseconds, none negative."""
    costs = np.zeros((len(KERNELS), TERMS))
    for kernel, row in enumerate(costs):
        has_counts = np.isfinite(us[:, kernel]) & (counts[:, kernel, 0] > 0)
        if has_counts.any():
            scaled = counts[has_counts, kernel] / us[has_counts, kernel, None]
            row[:] = non_negative(scaled, np.ones(len(scaled)))
    lowest = regret(costs, counts, us)
    for factor in (2.0, 1.4, 1.2, 1.1, 1.05, 1.02):
        for _ in range(6):
            previous = lowest
            for index in np.ndindex(costs.shape):
                for value in (
                    costs[index] * factor,
                    costs[index] / factor,
                    0.0,
                    costs[index] + 0.1 * (factor - 1),
                ):
                    old, costs[index] = costs[index], value
                    cost = regret(costs, counts, us)
                    if cost < lowest:
                        lowest = cost
                    else:
                        costs[index] = old
            if lowest > previous - 1e-5:
                break
    return costs


def non_negative(rows: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Least squares without negative numbers, by coordinate descent."""
    products, right, solution = rows.T @ rows, rows.T @ goal, np.zeros(rows.shape[1])
    for _ in range(2000):
        for i in range(len(solution)):
            if products[i, i] > 0:
                rest = right[i] - products[i] @ solution + products[i, i] * solution[i]
                solution[i] = max(0.0, rest / products[i, i])
    return solution


def table(costs: dict[int, np.ndarray]) -> str:
    """The lines of `kCosts` in `auto.cuh`."""
    lines = []
    for kernel, name in enumerate(KERNELS):
        cells = [", ".join(f"{value:.2f}" for value in costs[size][kernel]) for size in range(len(SIZES))]
        is_fitted = [bool(costs[size][kernel].any()) for size in range(len(SIZES))]
        lines.append(
            "    {"
            + ", ".join(f"{{{cell}}}" if fitted else "{}" for cell, fitted in zip(cells, is_fitted, strict=True))
            + "},"
            f"  // {name}"
        )
    return "\n".join(lines)


def describe_picks(estimates: np.ndarray, us: np.ndarray) -> str:
    """How far the picks are from the fastest."""
    off = over_fastest(estimates, us)
    return (
        f"{len(off)} shapes: geometric mean {geometric_mean(off.tolist()):.3f} times the fastest, "
        f"{(off > 1.03).mean():.1%} over 3 %, worst {off.max():.2f}"
    )


def main() -> None:
    """Record times if there is a GPU; fit the costs to the recorded times, and print them."""
    if torch.cuda.is_available():
        only = ("-DATTENTION_GROUPS_ONLY=k" + name.title().replace(" ", "") for name in KERNELS[4:])
        with ThreadPoolExecutor(len(KERNELS)) as pool:
            rest_of_kernels = pool.submit(libraries, KERNELS[:4])
            groups = pool.map(lambda flag: libraries(["warp_specialized"], flag)["warp_specialized"], only)
            ours = rest_of_kernels.result() | dict(zip(KERNELS[4:], groups, strict=True))
        drawn = {
            name: draw_shapes(count, seed) + [shape for shape, _ in draw_prefill(count // 4, seed)]
            for name, count, seed in (("fit", SHAPES, SEED), ("held out", SHAPES // 4, HELD_OUT))
        }
        measured = {name: {"shapes": shapes, "us": times_of(shapes, ours)} for name, shapes in drawn.items()}
        about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
        RECORDED.write_text(json.dumps({"about": about, **measured}) + "\n")
    elif not RECORDED.exists():
        sys.exit("no GPU, and nothing recorded")
    recorded = json.loads(RECORDED.read_text())
    print(recorded["about"])
    sets = {name: (recorded[name]["shapes"], as_times(recorded[name]["us"])) for name in ("fit", "held out")}
    counts = {name: counts_of(shapes, DEVICE) for name, (shapes, _) in sets.items()}
    size_of = {name: np.searchsorted(SIZES, [shape[5] for shape in shapes]) for name, (shapes, _) in sets.items()}
    costs = {
        size: fit(counts["fit"][of_size, :, :TERMS], sets["fit"][1][of_size])
        for size in range(len(SIZES))
        for of_size in [size_of["fit"] == size]
    }
    print(table(costs))
    for name, (_, us) in sets.items():
        fitted, today = np.array([costs[size] for size in size_of[name]]), counts[name][:, :, TERMS]
        print(f"{name}, costs of today: {describe_picks(np.where(np.isfinite(us), today, np.inf), us)}")
        print(f"{name}, fitted costs: {describe_picks(estimated(fitted, counts[name][:, :, :TERMS], us), us)}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
