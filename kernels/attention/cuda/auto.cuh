// The variant that picks another by shape: the one whose estimated time is lowest.
//
//   time = start + wave * waves of blocks + (chain * keys of a block + total * keys of a multiprocessor) / 100 (+ cut)
//
// A wave is a block on each multiprocessor; fewer blocks are one wave. Keys count in the whole steps that a block takes.
// Those of a block follow each other, however empty the device is; under a mask those of the longest block count. A
// multiprocessor has those of all its blocks; under a mask the mean counts. `cut` is what it takes to put ranges of keys
// together. The numbers of `kCosts` are microseconds on an H200, fitted to 5,237 random shapes: for their choice, not
// for the figures (ATTENTION.md has how often it is best, on others). Those of `warp_specialized` are provisional: they
// come from 14 large shapes on an H100. `make bench-choice` fits all of them anew.
#pragma once

#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

// Whether this GPU has the instructions of `warp_specialized`. The manifest's tuning says so.
#if !defined(ATTENTION_AUTO_GROUPS)
#define ATTENTION_AUTO_GROUPS false
#endif
#include "warp_specialized.cuh"

namespace attention {

enum Kernel { kTensorCore, kSmall, kDecode, kSplitK, kWarpSpecialized, kKernels };
struct Cost {
  double start = INFINITY, wave = 0, chain = 0, total = 0, cut = 0;
};
// How a kernel divides a call: query rows and keys that a block takes at a time, and ranges of keys. No rows: the kernel
// does not take the call.
struct Tiling {
  int rows = 0, step = 0, ranges = 1;
};
constexpr const char *kNames[kKernels] = {"tensor_core", "small", "decode", "split_k", "warp_specialized"};
constexpr Cost kCosts[kKernels][4] = {
    // Up to 32 features, 64, 128 and 256.
    {{1.22, 0.44, 1.20, 0.25}, {0.41, 1.43, 0.97, 0.32}, {1.28, 0.60, 1.07, 1.61}, {2.09, 2.47, 1.59, 1.29}},
    {{0.53, 0.30, 0.37, 0.17}, {0.44, 0.74, 0.38, 0.15}, {0.31, 0.84, 0.39, 0.69}, {}},
    {{0.59, 0.57, 0.43, 0.25, 0.01}, {0.40, 0.87, 0.40, 0.20, 0.21}, {0.01, 1.06, 0.56, 0.70, 0.01},
     {0.26, 2.11, 0.81, 0.83, 3.47}},
    {{1.25, 1.36, 0.36, 1.10, 1.27}, {0.86, 2.23, 0.64, 1.86, 1.02}, {1.03, 11.45, 2.29, 0.43, 1.04}, {}},
    {{}, {2.00, 4.20, 0.90, 0.93}, {2.00, 4.50, 0.85, 1.04}, {2.00, 9.00, 1.85, 1.54}},
};

// What the five numbers of a cost are multiplied by.
inline Cost counts(const Problem &problem, const Tiling &tiling) {
  const bool masked = problem.causal && problem.queries > 1 && tiling.ranges == 1;
  const double blocks = double(problem.batches) * problem.heads * ((problem.queries - 1) / tiling.rows + 1) * tiling.ranges;
  const double waves = blocks / static_cast<double>(kSms);
  const double chain = std::ceil(double(problem.keys) / tiling.ranges / tiling.step) * tiling.step;
  const double mean = chain - (masked ? std::min(problem.keys, problem.queries) / 2.0 : 0.0);
  return {1.0, std::ceil(waves), chain / 100, waves * mean / 100, tiling.ranges > 1 ? 1.0 : 0.0};
}
inline double estimate(const Cost &cost, const Cost &count) {
  return cost.start + cost.wave * count.wave + cost.chain * count.chain + cost.total * count.total + cost.cut * count.cut;
}

// Every kernel's tiling and estimate; infinite for those that do not come into question.
template <int kDepth>
struct Choice {
  static constexpr int kWidth = kDepth <= 64 ? 64 : kDepth <= 128 ? 128 : 256;
  static constexpr int kGroupsWidth = kDepth == 192 ? 192 : kWidth;
  static constexpr int kSize = kDepth <= 32 ? 0 : kDepth <= 64 ? 1 : kDepth <= 128 ? 2 : 3;
  Tiling tilings[kKernels];
  double times[kKernels];
  Kernel best = kTensorCore;

  explicit Choice(const Problem &problem) {
    tilings[kTensorCore] = {64, 64};
    if constexpr (kDepth > 16) {  // Narrower rows may not begin at multiples of 16 bytes.
      using Ring = typename DecodeBy<kWidth>::Shape;
      tilings[kDecode] = {Ring::kRows, Ring::kKeys * Ring::kWarps, decode_cut<kWidth>(problem).ranges};
      if constexpr (kWidth <= 128) {
        tilings[kSmall] = {16, small_step<kDepth == 32 ? 32 : kWidth>(problem)};
        if (const int ranges = split_ranges<kWidth>(problem); ranges > 1) tilings[kSplitK] = {64, 64, ranges};
      }
    }
    if constexpr (ATTENTION_AUTO_GROUPS && kDepth > 32) {
      using Masked = GroupsOf<kGroupsWidth, true>;
      using Full = GroupsOf<kGroupsWidth, false>;
      if (is_mappable(problem))
        tilings[kWarpSpecialized] = problem.causal ? Tiling{Masked::kRows, Masked::kKeys} : Tiling{Full::kRows, Full::kKeys};
    }
    for (int kernel = 0; kernel < kKernels; kernel++) {
      const Tiling &tiling = tilings[kernel];
      times[kernel] = tiling.rows ? estimate(kCosts[kernel][kSize], counts(problem, tiling)) : INFINITY;
      if (times[kernel] < times[best]) best = static_cast<Kernel>(kernel);
    }
  }
};

template <typename T, int kDepth>
Error choose(const Problem &problem, cudaStream_t stream) {
  constexpr int kWidth = Choice<kDepth>::kWidth;
  const Choice<kDepth> choice(problem);
  for (int kernel = 0; kernel < kKernels; kernel++)
    if (choice.times[kernel] < INFINITY) simt::remark("%s %.1f us", kNames[kernel], choice.times[kernel]);
  if constexpr (ATTENTION_AUTO_GROUPS && kDepth > 32)
    if (choice.best == kWarpSpecialized) return warp_specialized<T, Choice<kDepth>::kGroupsWidth>(problem, stream);
  if constexpr (kDepth > 16) {
    if (choice.best == kDecode) return decode<T, kWidth>(problem, stream);
    if constexpr (kWidth <= 128) {
      if (choice.best == kSmall) return small<T, kDepth == 32 ? 32 : kWidth>(problem, stream);
      if (choice.best == kSplitK) return split_k<T, kWidth>(problem, stream);
    }
  }
  return tensor_core<T, kDepth>(problem, stream);
}

}  // namespace attention
