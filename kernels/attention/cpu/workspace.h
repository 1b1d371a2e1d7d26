// Scratch memory: what one thread needs for a group of blocks, and where it comes from.
//
// For D = 64 in fp32 a group of 8 blocks takes 124 KB on AVX2, which is also what it competes for in the second-level
// cache with the tile of keys that its blocks share (128 KB of K and V).
#pragma once

#include <cstdint>
#include <cstdlib>

#include "block.h"

namespace attention {

constexpr int kGroupBlocks = 8;  // blocks of queries that go through the keys together

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The scratch memory of one thread, cut out of one piece. Every part is a whole number of cache lines.
struct Scratch {
  Block blocks[kGroupBlocks];  // with their arrays in place
  float *scores;               // [key of a tile][query of a block]
  float *k, *v;                // [key of a tile][D], widened, or taken apart; null when the tensors are fp32
  float *rows;                 // [query of a block][D], likewise

  Scratch(float *memory, int64_t depth, bool widened, int group) { lay_out(memory, depth, widened, group); }

  // How much memory that is, in floats.
  static int64_t floats(int64_t depth, bool widened, int group) {
    return Scratch().lay_out(nullptr, depth, widened, group);
  }

 private:
  Scratch() = default;

  int64_t lay_out(float *memory, int64_t depth, bool widened, int group) {
    int64_t used = 0;
    const auto take = [&](int64_t floats) {
      float *const part = memory ? memory + used : nullptr;
      used += divide_up(floats, 16) * 16;
      return part;
    };
    for (int b = 0; b < group; b++) {
      blocks[b].q = take(depth * kBlockRows);
      blocks[b].o = take(depth * kBlockRows);
      blocks[b].max = take(kBlockRows);
      blocks[b].sum = take(kBlockRows);
    }
    scores = take(kScoreRows * kBlockRows);
    k = take(widened ? kKeyTile * depth : 0);
    v = take(widened ? kKeyTile * depth : 0);
    rows = take(widened ? kBlockRows * depth : 0);
    return used;
  }
};

// Memory that is kept from call to call: one for each thread that calls.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  ~Workspace() { std::free(memory_); }

  // At least `floats` floats at the start of a cache line, or null when there is no memory.
  float *reserve(int64_t floats) {
    if (floats > capacity_) {
      std::free(memory_);
      memory_ = static_cast<float *>(std::aligned_alloc(64, static_cast<size_t>(floats) * sizeof(float)));
      capacity_ = memory_ ? floats : 0;
    }
    return memory_;
  }

 private:
  float *memory_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace attention
