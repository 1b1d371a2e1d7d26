// Which tiles run. Their values are data: the manifest's `tuning` has those of each device, and they come as macros.
//
//   Wide<D>     for grids that fill the device: TensorCoreShape<D, query rows, keys, warps, blocks, held>
//   Narrow<D>   for smaller ones
//   kSms        multiprocessors, by which waves of blocks are counted
#pragma once

#include <algorithm>

#include "problem.cuh"
#include "shape.cuh"

#if !defined(ATTENTION_WIDE_SMS) || !defined(ATTENTION_WIDE_64_ROWS) || !defined(ATTENTION_WIDE_128_ROWS)
#error "tiles: the manifest's tuning gives them; let {tuned} stand among the flags"
#endif

namespace attention {

template <int kDepth>
struct Narrow : TensorCoreShape<kDepth, 64, 64, 4, (kDepth >= 96 ? 2 : 3), (kDepth <= 128)> {};

// Elsewhere nothing is wider: up to 32 features nothing was tuned; of 192 and 256 an L4 holds no more.
template <int kDepth>
struct Wide : Narrow<kDepth> {};
template <>
struct Wide<64> : TensorCoreShape<64, ATTENTION_WIDE_64_ROWS, ATTENTION_WIDE_64_KEYS, ATTENTION_WIDE_64_WARPS,
                                  ATTENTION_WIDE_64_BLOCKS, ATTENTION_WIDE_64_HELD> {};
template <>
struct Wide<128> : TensorCoreShape<128, ATTENTION_WIDE_128_ROWS, ATTENTION_WIDE_128_KEYS, ATTENTION_WIDE_128_WARPS,
                                   ATTENTION_WIDE_128_BLOCKS, ATTENTION_WIDE_128_HELD> {};
template <>
struct Wide<96> : TensorCoreShape<96, ATTENTION_WIDE_96_ROWS, ATTENTION_WIDE_96_KEYS, ATTENTION_WIDE_96_WARPS,
                                  ATTENTION_WIDE_96_BLOCKS, ATTENTION_WIDE_96_HELD> {};
constexpr int64_t kSms = ATTENTION_WIDE_SMS;

// Every kernel begins as the one before ends. Waiting blocks take whatever places are free, and some multiprocessors get
// more of them than others. So blocks let the next kernel's come late: with their last tile, or once they have their
// queries. Where there are no more blocks than multiprocessors, each has one to itself by asking for more than half of its
// shared memory; then the next kernel's come one to each, and may come from the start.
inline size_t early_bytes(const dim3 &grid, size_t bytes) {
  return int64_t(grid.x) * grid.y * grid.z <= kSms ? std::max(bytes, simt::kWholeMultiprocessor) : bytes;
}
SIMT_DEVICE bool is_alone() { return int64_t(gridDim.x) * gridDim.y * gridDim.z <= kSms; }

}  // namespace attention
