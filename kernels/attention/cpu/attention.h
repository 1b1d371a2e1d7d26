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
constexpr int kKeyTile = 256;                        // keys between two updates of the running maximum

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
};

// A tile of keys: `count` of them from number `first` on, and their values.
struct Keys {
  Rows k, v;
  int64_t first;
  int count;
};

// How many keys of the tile vector `n` of the block sees: its last lane's, for the others are a little behind.
inline int seen_keys(const Block &block, const Keys &keys, int n) {
  const int64_t seen = block.keys_full + (n + 1) * kLanes - 1 - keys.first;
  return static_cast<int>(std::min<int64_t>(std::max<int64_t>(seen, 0), keys.count));
}

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

// Scores of the keys [begin, end) of a tile for the last N vectors of a block, masked, into `scores` [key][lanes].
// Raises max[n] to cover those of vector n.
template <int N>
__attribute__((noinline)) void score_keys(const Block &block, const Keys &keys, int begin, int end, int64_t depth,
                                          float *scores, float *max) {
  constexpr int R = kTileRows<N>;
  const int lanes = block.vectors * kLanes, first_lane = lanes - N * kLanes;
  const float *q = block.q + first_lane;
  for (int j = begin; j < end; j += R) {
    const float *row[R];  // the last row again where there are fewer: scored and not used
    for (int r = 0; r < R; r++) row[r] = keys.k.data + std::min(j + r, end - 1) * keys.k.stride;
    Vec tile[R][N];
    multiply_keys<R, N>(row, q, lanes, 0, std::min(kChain, depth), tile);
    for (int64_t d = kChain; d < depth; d += kChain) {
      Vec sum[R][N];
      for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) sum[r][n] = tile[r][n];
      multiply_keys<R, N>(row, q, lanes, d, std::min(d + kChain, depth), tile);
      for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) tile[r][n] += sum[r][n];
    }

    if (keys.first + j + R > block.keys_full) {  // the diagonal: lane i sees one key more than lane i - 1
      for (int r = 0; r < R; r++) {
        const int sees = static_cast<int>(keys.first + j + r - block.keys_full) + 1 - first_lane;
        for (int n = 0; n < N; n++)
          tile[r][n] = select(lane_numbers() + n * kLanes >= sees, tile[r][n], splat(-INFINITY));
      }
    }
    for (int n = 0; n < N; n++) {
      Vec most = load(max + first_lane + n * kLanes);
      for (int r = 0; r < R; r++) {
        most = larger(tile[r][n], most);  // passes over NaN: it comes back with the exponential
        store(scores + (j + r) * lanes + first_lane + n * kLanes, tile[r][n]);
      }
      store(max + first_lane + n * kLanes, most);
    }
  }
}

// Scores of the keys of a tile from `begin` on for the last N vectors of a block: all of them for the keys that the
// first of them sees; beyond, one vector after the other has seen enough, so that little of the diagonal is wasted.
template <int N>
void score_staircase(const Block &block, const Keys &keys, int begin, int64_t depth, float *scores, float *max) {
  const int end = seen_keys(block, keys, block.vectors - N);
  score_keys<N>(block, keys, begin, end, depth, scores, max);
  if constexpr (N > 1)
    if (end < keys.count) score_staircase<N - 1>(block, keys, end, depth, scores, max);
}

// scores = 2^(scores - max - headroom) for one vector of queries, `step` floats from key to key. Returns their sum.
ATTENTION_INLINE Vec exponentiate(float *scores, int step, int count, Vec max, float headroom) {
  Vec sum = Vec{};
  int j = 0;
  for (; j + 4 <= count; j += 4, scores += 4 * step) {
    Vec weights[4];
    for (int i = 0; i < 4; i++) weights[i] = load(scores + i * step) - max;
    exp2_of_nonpositive(weights, headroom);
    sum += (weights[0] + weights[1]) + (weights[2] + weights[3]);
    for (int i = 0; i < 4; i++) store(scores + i * step, weights[i]);
  }
  for (; j < count; j++, scores += step) {
    Vec weight[1] = {load(scores) - max};
    exp2_of_nonpositive(weight, headroom);
    sum += weight[0];
    store(scores, weight[0]);
  }
  return sum;
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
  float new_max[lanes];
  Vec decay[N];
  std::copy_n(block.max, lanes, new_max);
  score_staircase<N>(block, keys, 0, depth, scores, new_max);

  for (int n = 0; n < N; n++) decay[n] = load(block.max + n * kLanes) - load(new_max + n * kLanes);
  exp2_of_nonpositive(decay, 0);
  for (int n = 0; n < N; n++) {
    const int seen = seen_keys(block, keys, n);
    const Vec max = load(new_max + n * kLanes);
    const Vec sum = exponentiate(scores + n * kLanes, lanes, seen, max, block.headroom);
    for (int j = seen; j < keys.count; j++) store(scores + j * lanes + n * kLanes, Vec{});
    store(block.sum + n * kLanes, load(block.sum + n * kLanes) * decay[n] + sum);
    store(block.max + n * kLanes, max);
  }

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
  const int lanes = block.vectors * kLanes;
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
  const int lanes = block.vectors * kLanes;
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
