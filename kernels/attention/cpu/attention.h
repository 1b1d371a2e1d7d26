// Attention, softmax(scale * Q K^T) V, with the queries across the lanes.
//
// Idea. Queries are taken in blocks of up to kBlockRows and transposed once, so that a vector holds one feature of
// kLanes queries. Scores are then S^T = K Q^T and outputs O^T = V^T P^T, and in both the operand that all queries share
// (K, V) is *broadcast*, one scalar at a time, straight from where the caller left it:
//   - K and V are neither packed nor transposed, whatever their strides, and never read past their last element;
//   - maximum, sum and rescaling are lane-wise: the softmax has no horizontal operation;
//   - D and the number of keys are plain loop counts: one instantiation serves all of them, and compiles in 2 to 3 s.
//
// A processor with matrix units computes both products of half precision on them (matrix.h); all else is the same.
//
// Arithmetic, for AVX2 and D = 64: a block is 24 queries; 6 KB of Q^T, 24 KB of P^T (256 keys) and 6 KB of O^T are its
// working set, K and V stream through: 4 bytes of them for 24 multiply-adds. A score costs 2 * 64 multiply-adds and an
// exponential, 5 cycles for 8: 7 % of the time. On a Zen 3 core with a peak of 100 GFLOP/s the scores reach 94, the
// product with V 99, the whole 87 (full, S = 512).
//
// Causal: keys beyond the diagonal are never visited; on it, scores are skipped by vectors of queries (score_staircase)
// and masked by lanes. There the product with V multiplies with zero weights: an Inf or NaN in V (not in K) reaches the
// other queries of its block, as in every kernel that multiplies a masked zero.
//
// Tried, and lost (AVX2, Zen 3): blocks of 2 vectors (2 % faster for S <= 128, 9 % slower for S = 2048, D = 128); 64 or
// 128 keys a tile (5 and 2 % slower); unrolling the products by 4 (no change); prefetching the next keys (2 % slower);
// Estrin's scheme in the exponential (20 % slower there: its throughput counts, not its latency); a separate loop for
// each step of the diagonal in the product with V too (4 % faster for S = 64, 0.5 % slower unmasked, twice the code);
// the maximum taken inside the register tile (0.5 % faster, but masking moves in there as well).
// Weak: a single query fills one lane of a vector (half of PyTorch's speed); keys are not split among threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "../parts.h"
#include "block.h"
#include "elements.h"
#include "matrix.h"
#include "products.h"
#include "softmax.h"
#include "workspace.h"

namespace attention {

// The whole problem. Strides are in elements; the features of a row are adjacent.
struct Problem {
  struct Strides {
    int64_t batch, head, row;
  };

  const void *q, *k, *v;
  void *o;
  Strides q_strides, k_strides, v_strides, o_strides;
  int64_t batches, heads, queries, keys, depth;
  int64_t group;  // heads of queries that share one of keys and values
  bool causal;
  int64_t diagonal;  // causal: query i sees the keys j <= i + diagonal
  float scale;
#if defined(ATTENTION_PARTS)
  Parts parts;
#endif
};

// How the queries of a head are cut into blocks: as few as possible, and as even (4 vectors are 2 + 2, not 3 + 1).
struct Blocks {
  int64_t vectors, count;

  explicit Blocks(int64_t queries) : vectors(divide_up(queries, kLanes)), count(divide_up(vectors, kBlockVectors)) {}
  int64_t first_vector(int64_t block) const { return block * vectors / count; }
};

// The products of blocks of one head on vector units, in fp32.
template <typename T>
class VectorProducts {
 public:
  using Element = T;
  static constexpr int kKeys = kKeyTile;  // In a tile.

  static int64_t padded(int64_t depth) { return depth; }  // Features that scratch memory has room for.
  static bool suits(const T *, int64_t, int64_t, int64_t) { return true; }  // Whether it can compute with such rows.

  VectorProducts(int64_t depth, float scale, Scratch &scratch) : depth_(depth), scale_(scale), scratch_(scratch) {}

  // Starts a block with its queries.
  void begin(const Block &block, const T *rows, int64_t stride) const {
    transpose_queries(block, as_floats(rows, stride, block.rows, depth_, scratch_.rows), depth_, scale_);
  }

  // Takes a tile of keys and values.
  void take(const T *k, int64_t k_stride, const T *v, int64_t v_stride, int count) {
    k_ = as_floats(k, k_stride, count, depth_, scratch_.k);
    v_ = as_floats(v, v_stride, count, depth_, scratch_.v);
  }

  // The first `seen` keys of that tile, whose first is number `first`, for one block.
  void attend(const Block &block, int64_t first, int seen) const {
    static_assert(kBlockVectors == 3, "a case for every number of vectors");
    const Keys keys = {k_, v_, first, seen};
    switch (block.vectors) {
      case 1: return attend<1>(block, keys);
      case 2: return attend<2>(block, keys);
      default: return attend<3>(block, keys);
    }
  }

 private:
  template <int N>
  void attend(const Block &block, const Keys &keys) const {
    constexpr int lanes = N * kLanes;
    float *const scores = scratch_.scores;
    score_staircase<N>(block, keys, 0, depth_, scores);

    Vec decay[N];
    for (int n = 0; n < N; n++) decay[n] = weigh_keys(block, keys, n, scores, Weights());

    int64_t d = 0;
    const auto advance = [&](auto features) {
      constexpr int R = decltype(features)::value;
      accumulate<R, N>(keys.first == 0, block.o + d * lanes, decay, scores, keys.v.data + d, keys.v.stride, keys.count);
      d += R;
    };
    while (d + kTileRows<N> <= depth_) advance(std::integral_constant<int, kTileRows<N>>());
    while (d < depth_) advance(std::integral_constant<int, 1>());
  }

  const int64_t depth_;
  const float scale_;
  Scratch &scratch_;
  Rows k_ = {}, v_ = {};
};

// Describes block `number` of a head; where its arrays are is known already.
inline void place_block(Block &block, const Problem &problem, const Blocks &blocks, int64_t number) {
  block.first = blocks.first_vector(number) * kLanes;
  block.vectors = static_cast<int>(blocks.first_vector(number + 1) - blocks.first_vector(number));
  block.rows = static_cast<int>(std::min<int64_t>(block.lanes(), problem.queries - block.first));
  if (problem.causal) {
    block.keys_full = block.first + 1 + problem.diagonal;
    block.keys = std::min(std::max<int64_t>(block.keys_full + block.rows - 1, 0), problem.keys);
  } else {
    block.keys_full = block.keys = problem.keys;
  }
  block.headroom = std::ceil(std::log2(static_cast<float>(std::max<int64_t>(problem.keys, 1))));
}

// Computes the blocks [first, last) of one head, counted over all batches: at most kGroupBlocks.
template <class Products>
void attend_blocks(const Problem &problem, int64_t head, const Blocks &blocks, int64_t first, int64_t last,
                   Scratch &scratch) {
  using T = typename Products::Element;
  const auto rows_of = [&](auto *tensor, const Problem::Strides &strides, int64_t group) {
    return tensor + head / problem.heads * strides.batch + head % problem.heads / group * strides.head;
  };
  const T *const q = rows_of(static_cast<const T *>(problem.q), problem.q_strides, 1);
  const T *const k = rows_of(static_cast<const T *>(problem.k), problem.k_strides, problem.group);
  const T *const v = rows_of(static_cast<const T *>(problem.v), problem.v_strides, problem.group);
  T *const o = rows_of(static_cast<T *>(problem.o), problem.o_strides, 1);
  const int64_t q_row = problem.q_strides.row, k_row = problem.k_strides.row, v_row = problem.v_strides.row,
                o_row = problem.o_strides.row, depth = problem.depth;
  const int count = static_cast<int>(last - first);
  const int64_t begin = blocks.first_vector(first) * kLanes;
  const int64_t end = std::min(blocks.first_vector(last) * kLanes, problem.queries);
  if (!Products::suits(q + begin * q_row, q_row, end - begin, depth) ||
      !Products::suits(k, k_row, problem.keys, depth) || !Products::suits(v, v_row, problem.keys, depth))
    return attend_blocks<VectorProducts<T>>(problem, head, blocks, first, last, scratch);
  ATTENTION_SEEN((recorder = {problem.parts, head}));

  Products products(depth, problem.scale, scratch);
  for (int b = 0; b < count; b++) {
    Block &block = scratch.blocks[b];
    place_block(block, problem, blocks, first + b);
    products.begin(block, q + block.first * q_row, q_row);
    begin_block(block);
  }

  const int64_t keys = scratch.blocks[count - 1].keys;  // the last block sees the most
  for (int64_t j = 0; j < keys; j += Products::kKeys) {
    const int64_t tile = std::min<int64_t>(Products::kKeys, keys - j);
    products.take(k + j * k_row, k_row, v + j * v_row, v_row, static_cast<int>(tile));
    for (int b = 0; b < count; b++) {
      const Block &block = scratch.blocks[b];
      const int seen = static_cast<int>(std::min(tile, block.keys - j));
      if (seen > 0) products.attend(block, j, seen);
    }
  }

  for (int b = 0; b < count; b++) {
    const Block &block = scratch.blocks[b];
    T *const rows = o + block.first * o_row;
    ATTENTION_SEEN(record_block(block, depth));
    if constexpr (sizeof(T) == sizeof(float)) {
      end_block(block, depth, rows, o_row);
    } else {
      end_block(block, depth, scratch.rows, depth);
      for (int i = 0; i < block.rows; i++) narrow_row(scratch.rows + i * depth, depth, rows + i * o_row);
    }
  }
}

}  // namespace attention
