// The two products, as register tiles: scores S^T = K Q^T and outputs O^T = V^T P^T.
//
// A tile is R rows (keys, or features of V) by N vectors of queries: R * N accumulators, fed by N loads and R
// broadcasts for R * N multiply-adds. AVX2, 16 registers: 4 x 3 = 12 accumulators, 3 query vectors, 1 broadcast; with
// 7 loads for 12 multiply-adds the two load ports have time to spare, and 12 chains cover the 4 x 2 multiply-adds in
// flight. 32 registers (AVX-512, NEON): 8 x 3 = 24. The compiler is held to that allocation by `hold`, and by loops
// that end in `while`: around a loop that may not run, g++ keeps the accumulators in memory (16 keys: 80 GFLOP/s
// instead of 100).
#pragma once

#include <algorithm>
#include <cstdint>

#include "block.h"
#include "vector.h"

namespace attention {

// Rows of a register tile with N vectors of queries: enough chains to cover the FMA latency, few enough to fit.
template <int N>
constexpr int kTileRows = (kRegisters >= 32 || N == 1) ? 8 : 4;

// Features that one chain of multiply-adds sums up: half of them, or all if they are 32 or fewer. Rounding grows with
// the length of a chain, and it is the error of a score that the exponential magnifies: two chains have 0.8 of the
// error of one, for 2 % of the time; four have 0.7, for 5 %.
inline int64_t chain_length(int64_t depth) { return std::max<int64_t>(32, (depth + 1) / 2); }

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
  const int64_t chain = chain_length(depth);
  for (int j = begin; j < end; j += R) {
    const float *row[R];  // the last row again where there are fewer: scored and not used
    for (int r = 0; r < R; r++) row[r] = keys.k.data + std::min(j + r, end - 1) * keys.k.stride;
    for (int64_t d = 0; d < depth; d += chain) {
      Vec tile[R][N];
      multiply_keys<R, N>(row, block.q + first_lane, lanes, d, std::min(d + chain, depth), tile);
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

// R features of the outputs: o[r] = o[r] * decay + sum over keys of v[key][r] * weights[key]. There is no o the first
// time.
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

}  // namespace attention
