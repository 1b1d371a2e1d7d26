// Which tiles run. Their values are data: the manifest's `tuning` has those of each device, and they come as macros.
//
//   Wide<D>     for grids that fill the device: TensorCoreShape<D, query rows, keys, warps, blocks, held>
//   Narrow<D>   for smaller ones
//   kSms        multiprocessors, by which waves of blocks are counted
#pragma once

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

}  // namespace attention
