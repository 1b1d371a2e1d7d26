// The variant that picks another by shape. The thresholds are a table measured on an H200 and provisional for an L4.
#pragma once

#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

namespace attention {

// Blocks of 64 query rows that a device needs before tiles of that size keep it busy: two for each of 58
// multiprocessors.
constexpr int64_t kBusy = 2 * 58;
// Keys from which on one block of warps should not walk them alone.
constexpr int kLong = 2048;

template <typename T, int kDepth>
Error choose(const Problem &problem, cudaStream_t stream) {
  const int64_t heads = int64_t(problem.batches) * problem.heads;
  const int64_t blocks = heads * ((problem.queries + 63) / 64);
  if (blocks >= kBusy) return tensor_core<T, kDepth>(problem, stream);
  const int64_t small_blocks = heads * ((problem.queries + 15) / 16);
  if (small_blocks < kBusy && problem.keys >= kLong) return split_k<T, kDepth>(problem, stream);
  return small<T, kDepth>(problem, stream);
}

}  // namespace attention
