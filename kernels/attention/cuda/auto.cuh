// The variant that picks another by shape: the one whose estimated time is lowest.
//
//   time = start + D/64 (wide + block * blocks of a multiprocessor + keys * hundreds of keys that it walks in turn)
//
// with D as wide as the instance. Blocks of a multiprocessor are a fraction; the keys in turn are those of whole blocks,
// one after the other. Under a mask blocks differ and make up for each other: there it is their mean, but no less than
// the longest block's. The numbers of `kCosts` are microseconds, fitted to 221 calls on an H200. Where the estimates lie
// close together so do the times: it is the choice that counts, not the figure (ATTENTION.md has how often it is best).
#pragma once

#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

namespace attention {

enum Kernel { kTensorCore, kSmall, kDecode, kSplitK, kKernels };
struct Cost {
  const char *name;
  double start, wide, block, keys, reduction;
};
constexpr Cost kCosts[kKernels] = {
    {"tensor_core", 1.55, 0.49, 0.52, 0.94, 0.00},
    {"small", 1.05, 0.35, 0.47, 0.33, 0.00},
    {"decode", 1.75, 0.26, 0.39, 0.34, 0.26},
    {"split_k", 3.00, 0.00, 0.21, 1.06, 0.00},
};
// Keys up to which `small` walks them as fast as was fitted, and from which on `split_k` was.
constexpr int kFew = ATTENTION_AUTO_FEW, kMany = ATTENTION_AUTO_MANY;

// Microseconds of a kernel that takes `rows` query rows a block and cuts the keys into `ranges`.
inline double estimate(const Cost &cost, const Problem &problem, int depth, int rows, int ranges) {
  const double wide = depth / 64.0, sms = static_cast<double>(kSms);
  const double blocks = double(problem.batches) * problem.heads * ((problem.queries - 1) / rows + 1) * ranges;
  const double keys = problem.keys;
  const double mean = keys - std::min(keys, double(problem.queries)) / 2;
  const double turns = std::ceil(blocks / sms) * keys / ranges;
  const double even = std::max(keys, (blocks / sms + 0.5) * mean);
  const double walk = problem.causal && problem.queries > 1 && ranges == 1 ? even : turns;
  return cost.start + wide * (cost.wide + cost.block * blocks / sms + cost.keys * walk / 100 +
                              (ranges > 1 ? cost.reduction : 0.0));
}

// Every kernel's estimate; infinite for those that do not come into question.
template <int kDepth>
struct Choice {
  static constexpr int kWidth = kDepth <= 64 ? 64 : kDepth <= 128 ? 128 : 256;
  double times[kKernels];
  Kernel best = kTensorCore;

  explicit Choice(const Problem &problem) {
    for (double &time : times) time = INFINITY;
    times[kTensorCore] = estimate(kCosts[kTensorCore], problem, std::max(64, kDepth), 64, 1);
    if constexpr (kDepth > 16) {  // Narrower rows may not begin at multiples of 16 bytes.
      times[kDecode] = estimate(kCosts[kDecode], problem, kWidth, 16, decode_cut<kWidth>(problem).ranges);
      if constexpr (kWidth <= 128) {
        if (problem.keys <= kFew) times[kSmall] = estimate(kCosts[kSmall], problem, kWidth, 16, 1);
        const int ranges = split_ranges<kWidth>(problem);
        if (problem.keys >= kMany && ranges > 1)
          times[kSplitK] = estimate(kCosts[kSplitK], problem, kWidth, 64, ranges);
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
    if (choice.times[one] < INFINITY) simt::remark("%s %.1f us", kCosts[one].name, choice.times[one]);
  if constexpr (kDepth > 16) {
    if (choice.best == kDecode) return decode<T, kWidth>(problem, stream);
    if constexpr (kWidth <= 128) {
      if (choice.best == kSmall) return small<T, kWidth>(problem, stream);
      if (choice.best == kSplitK) return split_k<T, kWidth>(problem, stream);
    }
  }
  return tensor_core<T, kDepth>(problem, stream);
}

}  // namespace attention
