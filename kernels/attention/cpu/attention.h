// Attention with the queries across the lanes: softmax(scale * Q K^T) V for one block of queries.
//
// Idea. A block of kLanes * N queries is transposed once, so that a vector holds one feature of kLanes
// queries. Scores are then S^T = K Q^T and outputs O^T = V^T P^T, and in both the shared operand (K, V) is
// *broadcast*, one scalar at a time, straight from where the caller left it:
//   - K and V are never packed or transposed, whatever their strides, and never read past their last element;
//   - row maximum, sum and rescaling are lane-wise: the softmax has no horizontal operation;
//   - D and the number of keys are plain loop counts: one instantiation serves all of them.
//
// Tile arithmetic. Both products are a register tile of R rows (keys, or features of V) by N vectors of queries:
// R * N accumulators, N loads and R broadcasts for R * N multiply-adds. AVX2, 16 registers: 4 x 3 = 12 accumulators,
// 3 query vectors, 1 broadcast; 7 loads feed 12 multiply-adds, so two load ports keep two FMA ports busy, and
// 12 chains cover the 4 x 2 multiply-adds in flight. AVX-512 and NEON, 32 registers: 8 x 3 = 24 accumulators.
//
// Keys are visited in tiles of kKeyTile: scores of a tile, exponentials, product with V (online softmax: a running
// maximum per query, older sums and outputs scaled down when it grows). For AVX2 and D = 64 the block keeps
// 6 KB of Q^T, 6 KB of P^T and 6 KB of O^T in the first-level cache; K and V stream through.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "elements.h"
#include "vector.h"

namespace attention {

constexpr int kBlockVectors = 3;                     // of queries: the most that one block holds
constexpr int kBlockRows = kBlockVectors * kLanes;   // queries in such a block
// Keys between two updates of the running maximum: many, for the product with V starts its chains anew with each tile
// (64 keys: 90 GFLOP/s, 256: 99, of a peak of 100), but their scores must stay in the first-level cache: at most 24 KB.
constexpr int kKeyTile = std::min(256, 24 * 1024 / (kBlockRows * 4) / 8 * 8);

// Features that one chain of multiply-adds sums up. Rounding grows with the length of a chain and it is a score's error
// that the exponential magnifies: D = 64 in two chains has 0.8 of the error of one, for 2 % of the time.
constexpr int64_t kChain = 32;

// Rows of a register tile with N vectors of queries: enough chains to cover the FMA latency, few enough to fit.
template <int N>
constexpr int kTileRows = (kRegisters >= 32 || N == 1) ? 8 : 4;
constexpr int kScoreRows = kKeyTile + 8;  // a register tile may reach beyond the last key

// The queries of one block and what has been computed for them so far. All arrays are [row][lanes of the block].
struct Block {
  int64_t first;      // number of its first query
  int vectors;        // of queries, 1 to kBlockVectors; lanes beyond the last query compute on zeros
  int rows;           // queries that exist
  int64_t keys;       // that its last query sees: none of its queries sees one at or after this
  int64_t keys_full;  // that its first query sees: every query sees every key before this
  float headroom;
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

// scores[r][n] = sum over the features d in [first, last) of k[r][d] * q[d][n].
template <int R, int N>
ATTENTION_INLINE void multiply_keys(const float *const (&k)[R], const float *q, int lanes, int64_t first, int64_t last,
                                    Vec (&scores)[R][N]) {
  for (int r = 0; r < R; r++)
    for (int n = 0; n < N; n++) scores[r][n] = Vec{};
  q += first * lanes;
  do {  // first < last
    Vec queries[N];
    for (int n = 0; n < N; n++) queries[n] = hold(load(q + n * kLanes));
    for (int r = 0; r < R; r++) {
      const Vec key = splat(k[r][first]);
      for (int n = 0; n < N; n++) scores[r][n] += key * queries[n];
    }
    q += lanes;
  } while (++first < last);
}

// Scores of the keys [begin, end) of a tile for the last N vectors of a block, into `scores` [key][lanes].
template <int N>
__attribute__((noinline)) void score_keys(const Block &block, const Keys &keys, int begin, int end, int64_t depth,
                                          float *scores) {
  constexpr int R = kTileRows<N>;
  const int lanes = block.lanes(), first_lane = lanes - N * kLanes;
  for (int j = begin; j < end; j += R) {
    const float *row[R];  // the last row again where there are fewer: scored and not used
    for (int r = 0; r < R; r++) row[r] = keys.k.data + std::min(j + r, end - 1) * keys.k.stride;
    for (int64_t d = 0; d < depth; d += kChain) {
      Vec tile[R][N];
      multiply_keys<R, N>(row, block.q + first_lane, lanes, d, std::min(d + kChain, depth), tile);
      for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) {
          float *const to = scores + (j + r) * lanes + first_lane + n * kLanes;
          store(to, d == 0 ? tile[r][n] : load(to) + tile[r][n]);
        }
    }
  }
}

// Scores of the keys of a tile from `begin` on for the last N vectors of a block: all of them for the keys that the
// first of them sees; beyond, one vector after the other has seen enough, so that little of the diagonal is wasted.
template <int N>
void score_staircase(const Block &block, const Keys &keys, int begin, int64_t depth, float *scores) {
  const int end = keys.seen_by(block.keys_full + (block.vectors - N + 1) * kLanes - 1);
  score_keys<N>(block, keys, begin, end, depth, scores);
  if constexpr (N > 1)
    if (end < keys.count) score_staircase<N - 1>(block, keys, end, depth, scores);
}

// The softmax of vector `n` of a block over one tile: scores become weights 2^(score - max - headroom), 0 where masked.
// Updates the running maximum and sum; returns what older sums and outputs are to be multiplied with.
inline Vec weigh_keys(const Block &block, const Keys &keys, int n, float *scores) {
  const int lanes = block.lanes();
  const float headroom = block.headroom;
  scores += n * kLanes;
  float *const running_max = block.max + n * kLanes, *const running_sum = block.sum + n * kLanes;

  // The diagonal: the first lane of the vector sees `seen_full` keys, the next one more, the last lane `seen`.
  const int64_t first_sees = block.keys_full + n * kLanes;
  const int seen_full = keys.seen_by(first_sees), seen = keys.seen_by(first_sees + kLanes - 1);
  for (int j = seen_full; j < seen; j++) {
    const int first_lane = static_cast<int>(keys.first + j - first_sees) + 1;
    store(scores + j * lanes, select(lane_numbers() >= first_lane, load(scores + j * lanes), splat(-INFINITY)));
  }

  Vec max = load(running_max);
  int j = 0;
  for (; j + 4 <= seen; j += 4) {
    const float *const from = scores + j * lanes;
    max = larger(larger(larger(load(from), load(from + lanes)), larger(load(from + 2 * lanes), load(from + 3 * lanes))), max);
  }
  for (; j < seen; j++) max = larger(load(scores + j * lanes), max);  // passes over NaN: see below
  Vec decay[1] = {load(running_max) - max};
  exp2_of_nonpositive(decay, 0);

  Vec sum = Vec{};
  j = 0;
  for (; j + 4 <= seen; j += 4) {
    Vec weights[4];
    for (int i = 0; i < 4; i++) weights[i] = load(scores + (j + i) * lanes) - max;
    exp2_of_nonpositive(weights, headroom);
    sum += (weights[0] + weights[1]) + (weights[2] + weights[3]);  // NaN for a NaN score, and then the whole row
    for (int i = 0; i < 4; i++) store(scores + (j + i) * lanes, weights[i]);
  }
  for (; j < seen; j++) {
    Vec weight[1] = {load(scores + j * lanes) - max};
    exp2_of_nonpositive(weight, headroom);
    sum += weight[0];
    store(scores + j * lanes, weight[0]);
  }
  for (; j < keys.count; j++) store(scores + j * lanes, Vec{});

  store(running_max, max);
  store(running_sum, load(running_sum) * decay[0] + sum);
  return decay[0];
}

// R features of the outputs: o[r] = o[r] * decay + sum over keys of v[key][r] * weights[key]. The first time there is no o.
template <int R, int N>
__attribute__((noinline)) void accumulate(bool first_time, float *o, const Vec (&decay)[N], const float *weights,
                                          const float *v, int64_t v_stride, int count) {
  Vec tile[R][N];
  for (int r = 0; r < R; r++)
    for (int n = 0; n < N; n++) tile[r][n] = Vec{};

  const float *const end = weights + count * N * kLanes;
  do {  // count > 0
    Vec weight[N];
    for (int n = 0; n < N; n++) weight[n] = hold(load(weights + n * kLanes));
    for (int r = 0; r < R; r++) {
      const Vec value = splat(v[r]);
      for (int n = 0; n < N; n++) tile[r][n] += value * weight[n];
    }
    weights += N * kLanes;
    v += v_stride;
  } while (weights != end);
  for (int r = 0; r < R; r++)
    for (int n = 0; n < N; n++) {
      float *to = o + (r * N + n) * kLanes;
      store(to, first_time ? tile[r][n] : load(to) * decay[n] + tile[r][n]);
    }
}

// One tile of keys for one block of queries. `scores` is scratch: [key][lanes].
template <int N>
void attend_keys(const Block &block, const Keys &keys, int64_t depth, float *scores) {
  constexpr int R = kTileRows<N>, lanes = N * kLanes;
  score_staircase<N>(block, keys, 0, depth, scores);
  Vec decay[N];
  for (int n = 0; n < N; n++) decay[n] = weigh_keys(block, keys, n, scores);

  int64_t d = 0;
  const auto advance = [&](auto features) {
    constexpr int rows = decltype(features)::value;
    accumulate<rows, N>(keys.first == 0, block.o + d * lanes, decay, scores, keys.v.data + d, keys.v.stride, keys.count);
    d += rows;
  };
  while (d + R <= depth) advance(std::integral_constant<int, R>());
  while (d < depth) advance(std::integral_constant<int, 1>());
}

inline void attend_keys(const Block &block, const Keys &keys, int64_t depth, float *scores) {
  switch (block.vectors) {
    case 1: return attend_keys<1>(block, keys, depth, scores);
    case 2: return attend_keys<2>(block, keys, depth, scores);
    default: return attend_keys<kBlockVectors>(block, keys, depth, scores);
  }
}

// Starts a block: its queries transposed and scaled, nothing seen yet.
inline void begin_block(const Block &block, Rows q, int64_t depth, float scale) {
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
  // The lowest finite number, not -inf: a query that has seen nothing has weights 2^(-inf - max) = 0, not NaN.
  std::fill_n(block.max, lanes, -FLT_MAX);
  std::fill_n(block.sum, lanes, 0.0f);
  if (block.keys == 0) std::fill_n(block.o, depth * lanes, 0.0f);
}

// Ends a block: outputs divided by the sums and transposed back to `rows` [query][D]. A query that saw no key gets zeros.
inline void end_block(const Block &block, int64_t depth, float *rows, int64_t stride) {
  const int lanes = block.lanes();
  for (int n = 0; n < block.vectors; n++) {
    const Vec sum = load(block.sum + n * kLanes);
    store(block.sum + n * kLanes, select(sum == 0.0f, Vec{}, 1.0f / sum));
  }
  for (int i = 0; i < block.rows; i += 4) {
    const Quad inverse = load_quad(block.sum + i);
    float *to = rows + i * stride;
    int64_t d = 0;
    if (i + 4 <= block.rows) {
      for (; d + 4 <= depth; d += 4) {
        Quad tile[4];
        for (int c = 0; c < 4; c++) tile[c] = load_quad(block.o + (d + c) * lanes + i) * inverse;
        transpose(tile);
        for (int r = 0; r < 4; r++) store_quad(to + r * stride + d, tile[r]);
      }
    }
    for (; d < depth; d++)
      for (int r = 0; r < 4 && i + r < block.rows; r++) to[r * stride + d] = block.o[d * lanes + i + r] * inverse[r];
  }
}

}  // namespace attention
