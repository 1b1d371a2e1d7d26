// The shape of a tensor-core kernel: its tile, its warps, and what follows from them.
#pragma once

#include <cstdint>

namespace attention {

template <int kDepth_, int kRows_, int kKeys_, int kWarps_, int kBlocks_, bool kHeld_ = true>
struct TensorCoreShape {
  using Base = TensorCoreShape;
  static constexpr int kDepth = kDepth_, kRows = kRows_, kKeys = kKeys_, kWarps = kWarps_;
  static constexpr int kBlocks = kBlocks_;  // Blocks a multiprocessor is to hold: bounds the registers.
  static constexpr int kThreads = kWarps * 32, kStrips = kRows / kWarps / 16;
  static constexpr int kKeyBytes = kKeys * kDepth * 2;
  static constexpr int kQueryBytes = kRows * kDepth * 2;
  static constexpr bool kHeld = kHeld_;  // Whether queries stay in registers; else they keep their shared memory.
  static constexpr int kKeysAt = kHeld ? 0 : kQueryBytes;
  static constexpr int kTilesBytes = kKeysAt + 2 * kKeyBytes;
  static constexpr int kSharedBytes = kQueryBytes > kTilesBytes ? kQueryBytes : kTilesBytes;

  static_assert(kRows % (16 * kWarps) == 0, "query rows: a multiple of 16 for each warp");
  static_assert(kKeys % 16 == 0, "keys: a multiple of 16, the depth of an mma");
  static_assert(kDepth == 16 || kDepth == 32 || kDepth % 64 == 0 || kDepth == 96, "features: 16, 32, 96, or a multiple of 64");
  static_assert(kWarps >= 1 && kWarps <= 32, "warps: 1 to 32, a block has at most 1024 threads");
  static_assert(kSharedBytes <= 101376, "shared memory: a block of an L4 may have 99 KB");
};

}  // namespace attention
