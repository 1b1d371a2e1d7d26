// Which tiles each device runs: data, measured where such a device was at hand. The manifest's flags name the device,
// -DATTENTION_sm_90; one that is not known here gets an L4's.
//
//   Wide<D>     for grids that fill the device: TensorCoreShape<D, query rows, keys, warps, blocks, held>
//   Narrow<D>   for smaller ones
//   kWideFrom   blocks of Wide from which on a grid counts as large
#pragma once

#include "shape.cuh"

namespace attention {

#if defined(ATTENTION_sm_90)
// Measured on an H200 (make bench-attention), 132 multiprocessors.
template <int kDepth>
struct Wide : TensorCoreShape<kDepth, 64, 64, 4, 3> {};
template <>
struct Wide<64> : TensorCoreShape<64, 128, 64, 4, 2> {};
template <>
struct Wide<128> : TensorCoreShape<128, 128, 64, 4, 2, false> {};
constexpr int64_t kWideFrom = 4 * 132;
#else
// An L4, 58 multiprocessors. Provisional: by the compiler's report for sm_89 (no spills), not yet by its clock.
template <int kDepth>
struct Wide : TensorCoreShape<kDepth, 64, 64, 4, 3> {};
template <>
struct Wide<64> : TensorCoreShape<64, 128, 64, 4, 2> {};
template <>
struct Wide<128> : TensorCoreShape<128, 64, 64, 4, 2> {};
constexpr int64_t kWideFrom = 4 * 58;
#endif

template <int kDepth>
struct Narrow : TensorCoreShape<kDepth, 64, 64, 4, kDepth == 128 ? 2 : 3> {};

}  // namespace attention
