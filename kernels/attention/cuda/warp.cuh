// One warp's share of the online softmax: kStrips strips of 16 query rows, in the registers of 32 lanes.
//
// mma m16n8k16 hands lane l the elements of rows l/4 and l/4 + 8 and, of every eight columns, 2(l mod 4) and the one
// after it. So a row belongs to four neighbouring lanes; its maximum and its sum meet by two shuffles. The weights P
// come out of the first product in just the layout that the second takes as its left operand.
//
// Registers of a lane: 4 D/8 kStrips for the output, 4 kKeys/8 kStrips for a tile's logits.
//
// The reference that is subtracted in exponents need not be the maximum. It stays while the maximum grows by less
// than 2^8: weights up to 256 are as exact as weights up to 1, and the output is rarely rescaled. (Seen in
// FlashAttention-4.)
#pragma once

#include "../parts.h"
#include "tile.cuh"

namespace attention {

constexpr float kSlack = 8.0f;

template <typename T, int kDepth, int kStrips, int kKeys>
struct Warp {
  static_assert(kKeys % 16 == 0, "keys come in steps of an mma's depth");
  using Layout = Swizzle<kDepth>;
  using Logits = float[kStrips][kKeys / 8][4];
  using Fragments = uint32_t[kStrips][4];  // One step of 16 features of the left operand.

  float output[kStrips][kDepth / 8][4];
  float top[kStrips][2];  // The reference in exponents, before scaling; -inf until a key was seen.
  float sum[kStrips][2];  // Of the weights in this lane's columns.

  SIMT_DEVICE void begin() {
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++) {
#pragma unroll
      for (int n = 0; n < kDepth / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) output[strip][n][i] = 0.0f;
      top[strip][0] = top[strip][1] = kMasked;
      sum[strip][0] = sum[strip][1] = 0.0f;
    }
  }

  // The queries as the left operand: fetched again for every tile of keys, or held in registers.
  struct SharedQueries {
    SharedAddress begin;

    SIMT_DEVICE void fetch(SharedAddress tile, unsigned lane) { begin = Layout::at(tile, lane & 15, lane >> 4); }
    SIMT_DEVICE void take(Fragments &fragments, int step) const {
#pragma unroll
      for (int strip = 0; strip < kStrips; strip++)
        ldmatrix_x4(fragments[strip], Layout::step(begin, step) + strip * 16 * Layout::kPitch);
    }
  };
  struct HeldQueries {
    Fragments held[kDepth / 16];

    // With their signs turned, where the scale is negative.
    SIMT_DEVICE void fetch(SharedAddress tile, unsigned lane, bool negative) {
      SharedQueries shared;
      shared.fetch(tile, lane);
#pragma unroll
      for (int step = 0; step < kDepth / 16; step++) shared.take(held[step], step);
      if (negative) turn_signs();
    }
    SIMT_DEVICE void take(Fragments &fragments, int step) const {
#pragma unroll
      for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
        for (int i = 0; i < 4; i++) fragments[strip][i] = held[step][strip][i];
    }
    SIMT_DEVICE void turn_signs() {
#pragma unroll
      for (auto &fragments : held)
#pragma unroll
        for (auto &fragment : fragments)
#pragma unroll
          for (uint32_t &pair : fragment) pair ^= kSigns;
    }
  };

  // logits = Q K^T for the keys of one tile, before scaling.
  template <class Queries>
  SIMT_DEVICE static void multiply_keys(Logits &logits, const Queries &queries, SharedAddress keys, unsigned lane) {
    const SharedAddress begin = Layout::at(keys, (lane >> 4 << 3) + (lane & 7), lane >> 3 & 1);
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
      for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) logits[strip][n][i] = 0.0f;
#pragma unroll
    for (int step = 0; step < kDepth / 16; step++) {
      const SharedAddress column = Layout::step(begin, step);
      Fragments a;
      queries.take(a, step);
#pragma unroll
      for (int n = 0; n < kKeys / 16; n++) {
        uint32_t b[4];
        ldmatrix_x4(b, column + n * 16 * Layout::kPitch);
#pragma unroll
        for (int strip = 0; strip < kStrips; strip++) {
          mma_m16n8k16<T>(logits[strip][2 * n], a[strip], b[0], b[1]);
          mma_m16n8k16<T>(logits[strip][2 * n + 1], a[strip], b[2], b[3]);
        }
      }
    }
  }

  // Hide what a row may not see: `first_key` is the tile's, `first_row` the warp's.
  SIMT_DEVICE static void mask(Logits &logits, const Problem &problem, int first_key, int first_row, unsigned lane) {
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = first_row + strip * 16 + static_cast<int>(lane / 4) + half * 8;
        const int shown = last_key(problem, row) - first_key - static_cast<int>(lane % 4 * 2);  // Columns up to here, counted from this lane's first.
#pragma unroll
        for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
          for (int i = 0; i < 2; i++)
            if (n * 8 + i > shown) logits[strip][n][2 * half + i] = kMasked;
      }
  }

  // Logits become weights; sums and, where the reference has to rise, outputs follow. kFirst: nothing was seen yet.
  template <bool kFirst = false>
  SIMT_DEVICE void weigh(Logits &logits, const Problem &problem, int first_key, int first_row, unsigned lane) {
    const float scale_log2 = problem.scale_log2;
    ATTENTION_SEEN(record_tile(kScores, logits, problem, first_key, first_row, lane));
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++) {
      float highest[2];
#pragma unroll
      for (int half = 0; half < 2; half++) highest[half] = row_maximum(logits[strip], top[strip][half], half);
      ATTENTION_SEEN(record_maxima(highest, problem, first_row + strip * 16, lane));
      if constexpr (kFirst) {
        top[strip][0] = highest[0], top[strip][1] = highest[1];
      } else {
        const bool rises = (highest[0] - top[strip][0]) * scale_log2 > kSlack ||
                           (highest[1] - top[strip][1]) * scale_log2 > kSlack;
        if (warp_any(rises)) raise(strip, highest, scale_log2);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) exponentiate(logits[strip], strip, half, scale_log2);
    }
    ATTENTION_SEEN(record_tile(kWeights, logits, problem, first_key, first_row, lane));
  }

  // output += P V for the keys of one tile.
  SIMT_DEVICE void multiply_values(const Logits &weights, SharedAddress values, unsigned lane) {
    const SharedAddress begin = Layout::at(values, lane & 15, lane >> 4);
#pragma unroll
    for (int step = 0; step < kKeys / 16; step++) {
      uint32_t a[kStrips][4];
#pragma unroll
      for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float *pair = &weights[strip][2 * step + i / 2][i % 2 * 2];
          a[strip][i] = pack<T>(pair[0], pair[1]);
        }
#pragma unroll
      for (int n = 0; n < kDepth / 16; n++) {
        uint32_t b[4];
        ldmatrix_x4_transposed(b, Layout::step(begin, n) + step * 16 * Layout::kPitch);
#pragma unroll
        for (int strip = 0; strip < kStrips; strip++) {
          mma_m16n8k16<T>(output[strip][2 * n], a[strip], b[0], b[1]);
          mma_m16n8k16<T>(output[strip][2 * n + 1], a[strip], b[2], b[3]);
        }
      }
    }
  }

  // Each lane knows the sum of its own columns: let all four of a row know the row's.
  SIMT_DEVICE void finish_sums() {
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        sum[strip][half] += shuffle_xor(sum[strip][half], 1);
        sum[strip][half] += shuffle_xor(sum[strip][half], 2);
      }
  }

  // The finished rows as elements, into a tile of the warp's own rows. A row that saw no key is zero; NaN stays.
  SIMT_DEVICE void put_output(SharedAddress tile, unsigned lane) const {
#pragma unroll
    for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float total = sum[strip][half], factor = total == 0.0f ? 0.0f : reciprocal_approx(total);
        const int row = strip * 16 + static_cast<int>(lane / 4) + half * 8;
#pragma unroll
        for (int n = 0; n < kDepth / 8; n++) {
          const float *pair = &output[strip][n][2 * half];
          shared_store(Layout::at(tile, row, n) + lane % 4 * 4, pack<T>(pair[0] * factor, pair[1] * factor));
        }
      }
  }

#if defined(ATTENTION_PARTS)
  // What this lane holds of a tile, of the maxima of a strip's rows, and of its rows in the end.
  SIMT_DEVICE void record_tile(Part part, const Logits &logits, const Problem &problem, int first_key, int first_row,
                               unsigned lane) const {
    for (int strip = 0; strip < kStrips; strip++)
      for (int n = 0; n < kKeys / 8; n++)
        for (int i = 0; i < 4; i++) {
          const int row = first_row + strip * 16 + static_cast<int>(lane / 4) + i / 2 * 8;
          const int key = first_key + n * 8 + static_cast<int>(lane % 4 * 2) + i % 2;
          const float value = logits[strip][n][i];
          const float subtracted = reference(top[strip][i / 2], problem.scale_log2);
          record(problem, part, row, key, part == kScores ? value * problem.scale_log2 : log2f(value) + subtracted);
        }
  }
  SIMT_DEVICE static void record_maxima(const float (&highest)[2], const Problem &problem, int first_row, unsigned lane) {
    if (lane % 4 == 0)
      for (int half = 0; half < 2; half++)
        record(problem, kRowMaximum, first_row + static_cast<int>(lane / 4) + half * 8, 0,
               highest[half] * problem.scale_log2);
  }
  SIMT_DEVICE void record_rows(const Problem &problem, int first_row, unsigned lane) const {
    for (int strip = 0; strip < kStrips; strip++)
      for (int half = 0; half < 2; half++) {
        const int row = first_row + strip * 16 + static_cast<int>(lane / 4) + half * 8;
        if (lane % 4 == 0) record_row(problem, row, top[strip][half] * problem.scale_log2, sum[strip][half]);
        for (int n = 0; n < kDepth / 8; n++)
          for (int i = 0; i < 2; i++) {
            const int feature = n * 8 + static_cast<int>(lane % 4 * 2) + i;
            if (feature < problem.depth)
              record(problem, kWeightedValues, row, feature, output[strip][n][2 * half + i]);
          }
      }
  }
#endif

 private:
  SIMT_DEVICE static float row_maximum(const float (&logits)[kKeys / 8][4], float highest, int half) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++) highest = fmaxf(highest, fmaxf(logits[n][2 * half], logits[n][2 * half + 1]));
    highest = fmaxf(highest, shuffle_xor(highest, 1));
    return fmaxf(highest, shuffle_xor(highest, 2));
  }

  // The exponent that is subtracted; 0 while a row has seen no key, so that -inf minus it stays -inf.
  SIMT_DEVICE static float reference(float top, float scale_log2) {
    return top == kMasked ? 0.0f : top * scale_log2;
  }

  SIMT_DEVICE void raise(int strip, const float (&highest)[2], float scale_log2) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float shrink = exp2_approx(top[strip][half] * scale_log2 - reference(highest[half], scale_log2));
      top[strip][half] = highest[half];
      sum[strip][half] *= shrink;
#pragma unroll
      for (int n = 0; n < kDepth / 8; n++) {
        output[strip][n][2 * half] *= shrink;
        output[strip][n][2 * half + 1] *= shrink;
      }
    }
  }

  SIMT_DEVICE void exponentiate(float (&logits)[kKeys / 8][4], int strip, int half, float scale_log2) {
    const float subtracted = reference(top[strip][half], scale_log2);
    float added = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) {
        logits[n][i] = exp2_approx(logits[n][i] * scale_log2 - subtracted);
        added += logits[n][i];
      }
    sum[strip][half] += added;
  }
};

}  // namespace attention
