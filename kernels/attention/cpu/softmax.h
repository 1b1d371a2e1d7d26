// The online softmax of a block over one tile of keys. Queries are lanes, so nothing here is horizontal.
//
// A running maximum per query, and a running sum of 2^(score - maximum); when the maximum grows, older sums and outputs
// decay. NaN: a NaN score does not raise the maximum, comes out of the exponential as NaN, and makes the sum NaN, hence
// the whole row. A masked score is replaced before anything looks at it, so a masked NaN reaches no one.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "block.h"
#include "parts.h"
#include "vector.h"

namespace attention {

// x = 2^(x - headroom) for x <= 0, to about one unit in the last place; exactly 0 where that is below 2^-126.5, so also
// for -inf; NaN stays NaN. `headroom` is a whole number, 0 to 64: a scaling by powers of two that rounds nothing.
//
// Adding `shift` (an integer, in [2^23, 2^24)) rounds x to an integer n and leaves n + 127 - headroom in the low bits,
// which, moved to the exponent field, are the float 2^(n - headroom). The clamp makes that field 0, the float 0. The
// rest, 2^f for f in [-1/2, 1/2], is a minimax polynomial with a relative error of 9e-8 that is exact at f = 0.
// Multiplying by the power of two, instead of adding to the exponent bits, is what keeps a NaN a NaN.
//
// M vectors advance in lockstep: one alone waits for itself, and the scheduler of the core does not see the next one.
template <int M>
ATTENTION_INLINE void exp2_of_nonpositive(Vec (&x)[M], float headroom) {
  const float exponent = 127.0f - headroom, shift = 12582912.0f + exponent;
  Vec shifted[M], f[M], power[M];
  for (int i = 0; i < M; i++) x[i] = larger(splat(-exponent), x[i]);
  for (int i = 0; i < M; i++) shifted[i] = x[i] + shift;
  for (int i = 0; i < M; i++) f[i] = x[i] - (shifted[i] - shift);
  for (int i = 0; i < M; i++) power[i] = f[i] * 1.3264727207e-3f + 9.6715126501e-3f;
  for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 5.5507337433e-2f;
  for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 2.4022242085e-1f;
  for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 6.9314697760e-1f;
  for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 1.0f;
  for (int i = 0; i < M; i++) x[i] = power[i] * (Vec)((IntVec)shifted[i] << 23);
}

// Weights to about one unit in the last place, of scores that are scaled already.
struct Weights {
  ATTENTION_INLINE Vec scaled(Vec scores) const { return scores; }

  template <int M>
  ATTENTION_INLINE void operator()(Vec (&scores)[M], Vec max, float headroom) const {
    for (int i = 0; i < M; i++) scores[i] -= max;
    exp2_of_nonpositive(scores, headroom);
  }

  // Puts the weights of four keys, the first of them number `j`, where the product with V finds them.
  ATTENTION_INLINE static void put(float *rows, int lanes, int j, const Vec (&four)[4]) {
    for (int i = 0; i < 4; i++) store(rows + (j + i) * lanes, four[i]);
  }

  // The same for keys [j, count) that weigh nothing.
  static void put_zeros(float *rows, int lanes, int j, int count) {
    for (; j < count; j++) store(rows + j * lanes, Vec{});
  }
};

// The softmax of vector `n` of a block over one tile: scores become weights 2^(score - max - headroom), 0 where masked,
// by `weights` (see Weights). Updates the running maximum and sum; returns what older sums and outputs are to be
// multiplied with. Thanks to the headroom no weight exceeds 1 / number of keys, and sums of weight * V stay finite for
// every finite V.
template <class By>
Vec weigh_keys(const Block &block, const Keys &keys, int n, float *scores, const By &weights) {
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

  ATTENTION_SEEN(record_scores(block, keys, n, seen, scores, weights));

  // Four keys at a time; those beyond the last have no weight.
  for (int j = seen; j % 4; j++) store(scores + j * lanes, splat(-INFINITY));
  Vec max = splat(-FLT_MAX);
  for (int j = 0; j < seen; j += 4) {
    const float *const from = scores + j * lanes;
    const Vec pair = larger(load(from), load(from + lanes));  // passes over NaN: see below
    max = larger(larger(pair, larger(load(from + 2 * lanes), load(from + 3 * lanes))), max);
  }
  max = larger(weights.scaled(max), load(running_max));
  Vec decay[1] = {load(running_max) - max};
  exp2_of_nonpositive(decay, 0);

  Vec sum = Vec{};
  for (int j = 0; j < seen; j += 4) {
    Vec four[4];
    for (int i = 0; i < 4; i++) four[i] = load(scores + (j + i) * lanes);
    weights(four, max, headroom);
    sum += (four[0] + four[1]) + (four[2] + four[3]);  // NaN for a NaN score, and then the whole row
    ATTENTION_SEEN(record_weights(block, keys, n, j, seen, four, max + headroom));
    weights.put(scores, lanes, j, four);
  }
  weights.put_zeros(scores, lanes, (seen + 3) / 4 * 4, keys.count);

  store(running_max, max);
  store(running_sum, load(running_sum) * decay[0] + sum);
  return decay[0];
}

}  // namespace attention
