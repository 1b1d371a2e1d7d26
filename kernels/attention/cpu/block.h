// A block of queries and a tile of keys: what the kernel holds while it works, and how a block begins and ends.
//
// A block is kept transposed, [feature][query], so that a vector holds one feature of kLanes queries. The transposes,
// 4 x 4 at a time, happen once per block on the way in (Q, 24 x 64: 0.17 us on AVX2) and out (O: 0.16 us).
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>

#include "elements.h"
#include "vector.h"

namespace attention {

constexpr int kBlockVectors = 3;                    // of queries: the most that one block holds
constexpr int kBlockRows = kBlockVectors * kLanes;  // queries in such a block

// Keys between two updates of the running maximum: many, for the product with V starts its chains anew with each tile
// (64 keys: 90 GFLOP/s, 256: 99, of a peak of 100), but their scores must stay in the first-level cache.
#ifndef ATTENTION_SCORES_KB
#error "the size of a tile: the manifest's tuning gives it; let {tuned} stand among the flags"
#endif
constexpr int kKeyTile = std::min(256, ATTENTION_SCORES_KB * 1024 / (kBlockRows * 4) / 8 * 8);
constexpr int kScoreRows = kKeyTile + 8;  // a register tile may reach beyond the last key

// The queries of one block and what has been computed for them so far. All arrays are [row][lanes of the block].
struct Block {
  int64_t first;      // number of its first query
  int vectors;        // of queries, 1 to kBlockVectors; lanes beyond the last query compute on zeros
  int rows;           // queries that exist
  int64_t keys;       // that its last query sees: none of its queries sees one at or after this
  int64_t keys_full;  // that its first query sees: every query sees every key before this
  float headroom;     // log2 of the number of keys, rounded up: see weigh_keys
  float *q;           // [D][lanes], scaled by log2(e) * scale: the softmax is in powers of two
  float *o;           // [D][lanes], not yet divided by sum
  float *max, *sum;   // [lanes]

  int lanes() const { return vectors * kLanes; }
};

// A tile of keys: `count` of them from number `first` on, and their values.
struct Keys {
  Rows k, v;
  int64_t first;
  int count;

  // How many of them a query sees that sees `visible` of all keys.
  int seen_by(int64_t visible) const {
    return static_cast<int>(std::min<int64_t>(std::max<int64_t>(visible - first, 0), count));
  }
};

// A block's queries, transposed and scaled.
inline void transpose_queries(const Block &block, Rows q, int64_t depth, float scale) {
  const int lanes = block.lanes();
  const float factor = scale * 1.44269504088896341f;
  for (int i = 0; i < lanes; i += 4) {
    const float *rows = q.data + i * q.stride;
    int64_t d = 0;
    if (i + 4 <= block.rows) {
      for (; d + 4 <= depth; d += 4) {
        Quad tile[4];
        for (int r = 0; r < 4; r++) tile[r] = load_quad(rows + r * q.stride + d);
        transpose(tile);
        for (int c = 0; c < 4; c++) store_quad(block.q + (d + c) * lanes + i, tile[c] * factor);
      }
    }
    for (; d < depth; d++)
      for (int r = 0; r < 4; r++)
        block.q[d * lanes + i + r] = i + r < block.rows ? rows[r * q.stride + d] * factor : 0.0f;
  }
}

// Starts a block: nothing seen yet.
inline void begin_block(const Block &block) {
  const int lanes = block.lanes();
  // The lowest finite number, not -inf: a query that has seen nothing has weights 2^(-inf - max) = 0, not NaN.
  std::fill_n(block.max, lanes, -FLT_MAX);
  std::fill_n(block.sum, lanes, 0.0f);
}

// Ends a block: outputs divided by the sums and transposed back to `rows` [query][D]. A query that saw no key gets
// zeros, whatever V holds.
inline void end_block(const Block &block, int64_t depth, float *rows, int64_t stride) {
  const int lanes = block.lanes();
  for (int i = 0; i < block.rows; i += 4) {
    const Quad sum = load_quad(block.sum + i), inverse = 1.0f / sum;
    float *const to = rows + i * stride;
    int64_t d = 0;
    if (i + 4 <= block.rows) {
      for (; d + 4 <= depth; d += 4) {
        Quad tile[4];
        for (int c = 0; c < 4; c++) {
          const Quad output = load_quad(block.o + (d + c) * lanes + i) * inverse;
          tile[c] = sum == 0.0f ? Quad{} : output;
        }
        transpose(tile);
        for (int r = 0; r < 4; r++) store_quad(to + r * stride + d, tile[r]);
      }
    }
    for (; d < depth; d++)
      for (int r = 0; r < 4 && i + r < block.rows; r++)
        to[r * stride + d] = sum[r] == 0.0f ? 0.0f : block.o[d * lanes + i + r] * inverse[r];
  }
}

}  // namespace attention
