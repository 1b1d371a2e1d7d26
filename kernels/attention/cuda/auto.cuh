// The variant that picks another by shape: the one whose estimated time is lowest.
//
//   time = start + wave * waves of blocks + (chain * keys of a block + total * keys of a multiprocessor) / 100 (+ cut)
//
// A wave is a block on each multiprocessor; fewer blocks are one wave. Keys count in the whole steps that a block takes.
// Those of a block follow each other, however empty the device is; under a mask those of the longest block count. A
// multiprocessor has those of all its blocks; under a mask the mean counts. `cut` is what it takes to put ranges of keys
// together. The numbers of `kCosts` are microseconds on an H200, fitted to 5,237 random shapes: for their choice, not
// for the figures (ATTENTION.md has how often it is best, on others).
#pragma once

#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

namespace attention {

enum Kernel { kTensorCore, kSmall, kDecode, kSplitK, kKernels };
struct Cost {
  double start = INFINITY, wave = 0, chain = 0, total = 0, cut = 0;
};
constexpr const char *kNames[kKernels] = {"tensor_core", "small", "decode", "split_k"};
constexpr Cost kCosts[kKernels][4] = {
    // Up to 32 features, 64, 128 and 256.
    {{1.22, 0.44, 1.20, 0.25}, {0.41, 1.43, 0.97, 0.32}, {1.28, 0.60, 1.07, 1.61}, {2.09, 2.47, 1.59, 1.29}},
    {{0.53, 0.30, 0.37, 0.17}, {0.44, 0.74, 0.38, 0.15}, {0.31, 0.84, 0.39, 0.69}, {}},
    {{0.59, 0.57, 0.43, 0.25, 0.01}, {0.40, 0.87, 0.40, 0.20, 0.21}, {0.01, 1.06, 0.56, 0.70, 0.01},
     {0.26, 2.11, 0.81, 0.83, 3.47}},
    {{1.25, 1.36, 0.36, 1.10, 1.27}, {0.86, 2.23, 0.64, 1.86, 1.02}, {1.03, 11.45, 2.29, 0.43, 1.04}, {}},
};

// Microseconds of a kernel whose blocks take `rows` query rows and `step` keys at a time; the keys are in `ranges`.
inline double estimate(const Cost &cost, const Problem &problem, int rows, int step, int ranges) {
  const bool masked = problem.causal && problem.queries > 1 && ranges == 1;
  const double blocks = double(problem.batches) * problem.heads * ((problem.queries - 1) / rows + 1) * ranges;
  const double waves = blocks / static_cast<double>(kSms);
  const double chain = std::ceil(double(problem.keys) / ranges / step) * step;
  const double mean = chain - (masked ? std::min(problem.keys, problem.queries) / 2.0 : 0.0);
  const double walk = (cost.chain * chain + cost.total * waves * mean) / 100;
  return cost.start + cost.wave * std::ceil(waves) + walk + (ranges > 1 ? cost.cut : 0.0);
}

// Every kernel's estimate; infinite for those that do not come into question.
template <int kDepth>
struct Choice {
  static constexpr int kWidth = kDepth <= 64 ? 64 : kDepth <= 128 ? 128 : 256;
  static constexpr int kSize = kDepth <= 32 ? 0 : kDepth <= 64 ? 1 : kDepth <= 128 ? 2 : 3;
  double times[kKernels];
  Kernel best = kTensorCore;

  explicit Choice(const Problem &problem) {
    const auto time_of = [&](Kernel kernel, int rows, int step, int ranges) {
      times[kernel] = estimate(kCosts[kernel][kSize], problem, rows, step, ranges);
    };
    for (double &time : times) time = INFINITY;
    time_of(kTensorCore, 64, 64, 1);
    if constexpr (kDepth > 16) {  // Narrower rows may not begin at multiples of 16 bytes.
      using Ring = typename DecodeBy<kWidth>::Shape;
      time_of(kDecode, Ring::kRows, Ring::kKeys * Ring::kWarps, decode_cut<kWidth>(problem).ranges);
      if constexpr (kWidth <= 128) {
        time_of(kSmall, 16, small_step<kDepth == 32 ? 32 : kWidth>(problem), 1);
        if (const int ranges = split_ranges<kWidth>(problem); ranges > 1) time_of(kSplitK, 64, 64, ranges);
      }
    }
    for (int one = 0; one < kKernels; one++)
      if (times[one] < times[best]) best = static_cast<Kernel>(one);
  }
};

template <typename T, int kDepth>
Error choose(const Problem &problem, cudaStream_t stream) {
  constexpr int kWidth = Choice<kDepth>::kWidth;
  const Choice<kDepth> choice(problem);
  for (int one = 0; one < kKernels; one++)
    if (choice.times[one] < INFINITY) simt::remark("%s %.1f us", kNames[one], choice.times[one]);
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
