// The variant that picks another by shape: the one whose estimated time is lowest.
//
//   time = start + block * blocks of a multiprocessor + keys * hundreds of keys that it walks in turn (+ cut)
//
// Blocks of a multiprocessor are a fraction; the keys in turn are those of whole blocks, one after the other. Under a mask
// blocks differ and make up for each other: there it is their mean, but no less than the longest block's. `cut` is what
// it takes to put ranges of keys together. The numbers of `kCosts` are microseconds, fitted to 200 shapes on an H200: for
// their choice, not for the figures (ATTENTION.md has how often it is best).
#pragma once

#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

namespace attention {

enum Kernel { kTensorCore, kSmall, kDecode, kSplitK, kKernels };
struct Cost {
  double start = INFINITY, block = 0, keys = 0, cut = 0;
};
constexpr const char *kNames[kKernels] = {"tensor_core", "small", "decode", "split_k"};
constexpr Cost kCosts[kKernels][4] = {
    // Up to 32 features, 64, 128 and 256.
    {{1.97, 0.24, 0.64}, {1.98, 0.65, 0.79}, {2.72, 1.18, 1.49}, {3.15, 2.49, 2.96}},
    {{1.55, 0.28, 0.15}, {1.45, 0.44, 0.32}, {1.90, 0.88, 0.54}, {}},
    {{1.58, 0.74, 0.38, 1.65}, {1.60, 0.76, 0.29, 1.65}, {1.65, 0.90, 0.71, 1.18}, {2.19, 1.32, 1.98, 4.44}},
    {{2.26, 4.49, 0.61}, {2.26, 4.49, 0.61}, {2.02, 1.78, 3.11}, {}},
};
// Keys up to which `small` keeps up with the ring of `decode`, and from which on `split_k` was fitted.
constexpr int kFew = ATTENTION_AUTO_FEW, kMany = ATTENTION_AUTO_MANY;

// Microseconds of a kernel that takes `rows` query rows a block and cuts the keys into `ranges`.
inline double estimate(const Cost &cost, const Problem &problem, int rows, int ranges) {
  const double sms = static_cast<double>(kSms), keys = problem.keys;
  const double blocks = double(problem.batches) * problem.heads * ((problem.queries - 1) / rows + 1) * ranges;
  const double mean = keys - std::min(keys, double(problem.queries)) / 2;
  const double turns = std::ceil(blocks / sms) * keys / ranges;
  const double even = std::max(keys, (blocks / sms + 0.5) * mean);
  const double walk = problem.causal && problem.queries > 1 && ranges == 1 ? even : turns;
  return cost.start + cost.block * blocks / sms + cost.keys * walk / 100 + (ranges > 1 ? cost.cut : 0.0);
}

// Every kernel's estimate; infinite for those that do not come into question.
template <int kDepth>
struct Choice {
  static constexpr int kWidth = kDepth <= 64 ? 64 : kDepth <= 128 ? 128 : 256;
  static constexpr int kSize = kDepth <= 32 ? 0 : kDepth <= 64 ? 1 : kDepth <= 128 ? 2 : 3;
  double times[kKernels];
  Kernel best = kTensorCore;

  explicit Choice(const Problem &problem) {
    const auto time_of = [&](Kernel kernel, int rows, int ranges) {
      times[kernel] = estimate(kCosts[kernel][kSize], problem, rows, ranges);
    };
    for (double &time : times) time = INFINITY;
    time_of(kTensorCore, 64, 1);
    if constexpr (kDepth > 16) {  // Narrower rows may not begin at multiples of 16 bytes.
      time_of(kDecode, 16, decode_cut<kWidth>(problem).ranges);
      if constexpr (kWidth <= 128) {
        if (problem.keys <= kFew) time_of(kSmall, 16, 1);
        const int ranges = split_ranges<kWidth>(problem);
        if (problem.keys >= kMany && ranges > 1) time_of(kSplitK, 64, ranges);
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
