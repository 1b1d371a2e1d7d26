// Which tiles run. Their values are data: the manifest's `tuning` has those of each device, and they come as macros.
//
//   Wide<D>     for grids that fill the device: TensorCoreShape<D, query rows, keys, warps, blocks, held>
//   Narrow<D>   for smaller ones
//   kWideFrom   blocks of Wide from which on a grid counts as large
#pragma once

#include "shape.cuh"

#if !defined(ATTENTION_WIDE_BLOCKS) || !defined(ATTENTION_WIDE_64_ROWS) || !defined(ATTENTION_WIDE_128_ROWS)
#error "tiles: the manifest's tuning gives them; let {tuned} stand among the flags"
#endif

namespace attention {

template <int kDepth>
struct Narrow : TensorCoreShape<kDepth, 64, 64, 4, (kDepth >= 96 ? 2 : 3), (kDepth <= 128)> {};

// Up to 32 features, and for 192, nothing was tuned.
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
template <>
struct Wide<256> : TensorCoreShape<256, ATTENTION_WIDE_256_ROWS, ATTENTION_WIDE_256_KEYS, ATTENTION_WIDE_256_WARPS,
                                   ATTENTION_WIDE_256_BLOCKS, ATTENTION_WIDE_256_HELD> {};
constexpr int64_t kWideFrom = ATTENTION_WIDE_BLOCKS;

}  // namespace attention
