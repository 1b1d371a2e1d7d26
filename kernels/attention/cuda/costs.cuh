// What a call costs by each kernel, estimated. `auto` and `warp_specialized` choose by it.
//
//   time = start + wave * waves of blocks + (chain * keys of a block + total * keys of a multiprocessor) / 100 (+ cut)
//
// A wave is a block on each multiprocessor; fewer blocks are one wave. Keys count in the whole steps that a block takes.
// Those of a block follow each other, however empty the device is; under a mask those of the longest block count. A
// multiprocessor has those of all its blocks; under a mask the mean counts. `cut` is what it takes to put ranges of keys
// together. Of `warp_specialized` one block fits a multiprocessor: there `total` is of the keys beyond the longest piece's.
#pragma once

#include <algorithm>
#include <cmath>

#include "groups.cuh"

// Whether this GPU has the instructions of `warp_specialized`. The manifest's tuning says so.
#if !defined(ATTENTION_AUTO_GROUPS)
#define ATTENTION_AUTO_GROUPS false
#endif

namespace attention {

// The last five are `warp_specialized`: warp groups that compute; folded, its two have an early and a late tile of rows;
// even, three share out keys evenly.
enum Kernel { kTensorCore, kSmall, kDecode, kSplitK, kThreeGroups, kTwoGroups, kFolded, kOneGroup, kEven, kKernels };
constexpr const char *kNames[kKernels] = {"tensor_core",  "small",      "decode", "split_k",
                                          "three groups", "two groups", "folded", "one group", "even"};

struct Cost {
  double start = INFINITY, wave = 0, chain = 0, total = 0, cut = 0;
};

// Microseconds, for the choice and not for the figures; up to 32 features, 64, 128 and 256. In ATTENTION.md stands how
// often the choice is best, on other shapes.
#if ATTENTION_AUTO_GROUPS
// Fitted to 2,500 random shapes on an H100 by `make bench-choice`. Except the start of split_k for 64 features: it is 1 us
// higher. No shape of the fit notices, and 64 queries with 4,096 keys took 1.2 times what decode takes.
constexpr Cost kCosts[kKernels][4] = {
    {{1.29, 0.37, 0.91, 0.11}, {1.06, 0.69, 0.62, 0.65}, {0.28, 0.99, 1.55, 0.97}, {0.91, 1.60, 2.14, 2.72}},
    {{1.09, 0.17, 0.18, 0.16}, {1.17, 0.38, 0.17, 0.22}, {0.63, 0.68, 0.60, 0.43}, {}},
    {{0.94, 0.51, 0.29, 0.23, 0.62}, {1.04, 0.65, 0.16, 0.28, 1.47}, {0.68, 0.86, 0.69, 0.49, 1.51},
     {0.60, 1.12, 1.50, 1.37, 4.16}},
    {{3.27, 0.52, 0.16, 1.13, 0.47}, {2.79, 1.93, 0.09, 1.79, 0.27}, {0.00, 5.92, 0.00, 2.32, 0.00}, {}},
    {{}, {1.99, 1.53, 1.18, 1.29}, {1.81, 1.94, 1.75, 1.90}, {}},
    {{}, {2.10, 1.58, 0.96, 1.01}, {1.75, 1.94, 1.28, 1.33}, {1.63, 3.10, 2.08, 1.81}},
    {{}, {1.32, 2.05, 0.66, 0.56}, {0.00, 4.22, 0.92, 0.57}, {4.74, 1.15, 1.49, 1.74}},
    {{}, {1.37, 1.74, 0.59, 0.73}, {1.52, 1.75, 1.03, 0.98}, {1.60, 2.92, 1.48, 1.76}},
    {{}, {7.86, 0.66, 0.00, 1.33}, {8.54, 1.58, 0.00, 2.00}, {}},
};
#else  // Fitted to 5,237 random shapes on an H200 without its groups; not yet measured on an L4.
constexpr Cost kCosts[kKernels][4] = {
    {{1.22, 0.44, 1.20, 0.25}, {0.41, 1.43, 0.97, 0.32}, {1.28, 0.60, 1.07, 1.61}, {2.09, 2.47, 1.59, 1.29}},
    {{0.53, 0.30, 0.37, 0.17}, {0.44, 0.74, 0.38, 0.15}, {0.31, 0.84, 0.39, 0.69}, {}},
    {{0.59, 0.57, 0.43, 0.25, 0.01}, {0.40, 0.87, 0.40, 0.20, 0.21}, {0.01, 1.06, 0.56, 0.70, 0.01},
     {0.26, 2.11, 0.81, 0.83, 3.47}},
    {{1.25, 1.36, 0.36, 1.10, 1.27}, {0.86, 2.23, 0.64, 1.86, 1.02}, {1.03, 11.45, 2.29, 0.43, 1.04}, {}},
};
#endif

// How a kernel divides a call: query rows and keys that a block takes at a time, and ranges of keys. No rows: the kernel
// does not take the call.
struct Tiling {
  int rows = 0, step = 0, ranges = 1;
};

// What the five numbers of a cost are multiplied by.
inline Cost counts(Kernel kernel, const Problem &problem, const Tiling &tiling) {
  const bool masked = problem.causal && problem.queries > 1 && tiling.ranges == 1;
  const double blocks = double(problem.batches) * problem.heads * ((problem.queries - 1) / tiling.rows + 1) * tiling.ranges;
  const double waves = blocks / static_cast<double>(kSms);
  const double chain = std::ceil(double(problem.keys) / tiling.ranges / tiling.step) * tiling.step;
  const double mean = chain - (masked ? std::min(problem.keys, problem.queries) / 2.0 : 0.0);
  const Cost count{1.0, std::ceil(waves), chain / 100, waves * mean / 100, tiling.ranges > 1 ? 1.0 : 0.0};
  if (kernel < kThreeGroups) return count;
  double pieces = waves;
  if (!masked) {
    const int groups = tiling.rows / 64, few = (groups - 1) / last_parts(static_cast<int64_t>(blocks), groups) + 1;
    // In the last round a piece may have fewer groups. One of two takes about 0.7 of their time, one of three a half.
    pieces = std::floor(waves) + (waves > std::floor(waves) ? (1.0 + few) / (1 + groups) : 0.0);
  }
  if (kernel == kEven) return {1.0, waves, 0.0, waves * mean / 100, 0.0};
  if (kernel == kFolded) return {1.0, count.wave, chain / 100, (count.wave - 1) * chain / 100, 0.0};
  const double longest = masked ? chain : chain * std::min(pieces, 1.0);
  return {1.0, count.wave, longest / 100, std::max(0.0, pieces * mean - longest) / 100, 0.0};
}

// Microseconds of a kernel that is compiled for so many features.
template <int kDepth>
double estimate(Kernel kernel, const Problem &problem, const Tiling &tiling) {
  if (!tiling.rows) return INFINITY;
  const Cost &cost = kCosts[kernel][kDepth <= 32 ? 0 : kDepth <= 64 ? 1 : kDepth <= 128 ? 2 : 3];
  const Cost count = counts(kernel, problem, tiling);
  return cost.start + cost.wave * count.wave + cost.chain * count.chain + cost.total * count.total + cost.cut * count.cut;
}

}  // namespace attention
