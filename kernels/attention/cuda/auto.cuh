// The variant that picks another by shape. The thresholds are data: the manifest's `tuning` has those of each device.
#pragma once

#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

namespace attention {

// Blocks of 64 query rows that a device needs before tiles of that size keep it busy.
constexpr int64_t kBusy = ATTENTION_AUTO_BUSY;
// Keys from which on one block of warps should not walk them alone.
constexpr int kLong = ATTENTION_AUTO_LONG;
// Keys from which on up to 16 queries are for `decode`.
constexpr int kFew = ATTENTION_AUTO_FEW;

template <typename T, int kDepth>
Error choose(const Problem &problem, cudaStream_t stream) {
  // Up to 32 features nothing was tuned: one kernel will do.
  if constexpr (kDepth >= 64) {
    constexpr int kWidth = kDepth == 64 ? 64 : kDepth <= 128 ? 128 : 256;
    const int64_t heads = int64_t(problem.batches) * problem.heads;
    const bool busy = heads * ((problem.queries - 1) / 64 + 1) >= kBusy;
    // Up to 16 queries are one tile, and their time is that of the keys. So wide that `small` does not fit, any number.
    if (problem.queries <= 16 ? busy || problem.keys >= kFew : kDepth == 256 && !busy)
      return decode<T, kWidth>(problem, stream);
    if constexpr (kWidth <= 128) {
      const bool few = heads * ((problem.queries - 1) / 16 + 1) < kBusy;
      if (!busy && few && problem.keys >= kLong) return split_k<T, kWidth>(problem, stream);
      if (!busy) return small<T, kWidth>(problem, stream);
    }
  }
  return tensor_core<T, kDepth>(problem, stream);
}

}  // namespace attention
