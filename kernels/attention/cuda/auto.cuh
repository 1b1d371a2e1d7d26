// The variant that picks another by shape: the one whose estimated time (costs.cuh) is lowest.
#pragma once

#include "costs.cuh"
#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"
#include "warp_specialized.cuh"

namespace attention {

// Every kernel's tiling and estimate; infinite for those that do not come into question.
template <int kDepth>
struct Choice {
  static constexpr int kWidth = kDepth <= 64 ? 64 : kDepth <= 128 ? 128 : 256;
  static constexpr int kGroupsWidth = kDepth == 192 ? 192 : kWidth;
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
    if constexpr (ATTENTION_AUTO_GROUPS && kDepth > 32)
      if (is_mappable(problem))
        for (int kernel = kThreeGroups; kernel < kKernels; kernel++)
          tilings[kernel] = groups_tiling<kGroupsWidth>(static_cast<Kernel>(kernel), problem);
    for (int number = 0; number < kKernels; number++) {
      const Kernel kernel = static_cast<Kernel>(number);
      times[kernel] = estimate<kDepth>(kernel, problem, tilings[kernel]);
      if (times[kernel] < times[best]) best = kernel;
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
    if (choice.best >= kThreeGroups)
      return warp_specialized<T, Choice<kDepth>::kGroupsWidth>(problem, stream);
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
