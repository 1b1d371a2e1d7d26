// The element types of the tensors, and rows of them as rows of floats.
//
// On vector units the kernel computes in fp32, and bfloat16 and float16 exist at its edges alone (matrix.h has another
// way). A tile of rows is widened into scratch memory before use, where dozens of queries share it. A finished block is
// rounded to nearest-even on its way out.
// The conversions are integer arithmetic on vectors: exact for every bit pattern, and vectorised by every compiler at
// every -march (as scalar loops, g++ leaves float16 scalar). F16C and AVX-512 do the same in one instruction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vector.h"

namespace attention {

struct Bfloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

using HalfVec = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t))));

ATTENTION_INLINE IntVec select(IntVec mask, IntVec yes, IntVec no) { return (yes & mask) | (no & ~mask); }

ATTENTION_INLINE Vec widen(Bfloat16, HalfVec halves) { return (Vec)(__builtin_convertvector(halves, IntVec) << 16); }

ATTENTION_INLINE Vec widen(Float16, HalfVec halves) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_cvtph_ps(0xffff, (__m256i)halves);
#elif defined(__AVX__) && defined(__F16C__)
  return (Vec)_mm256_cvtph_ps((__m128i)halves);
#else
  const IntVec bits = __builtin_convertvector(halves, IntVec), magnitude = bits & 0x7fff;
  // The exponent is biased by 127 instead of 15; infinity and NaN need as much again to reach the topmost one.
  const IntVec normal = (magnitude << 13) + 0x38000000 + ((magnitude >= 0x7c00) & 0x38000000);
  // A subnormal is magnitude * 2^-24: its bits below a 2^-14 count in that unit, and then the 2^-14 is taken away.
  const IntVec subnormal = (IntVec)((Vec)((magnitude << 13) + 0x38800000) - 0x1p-14f);
  return (Vec)(select(magnitude < 0x0400, subnormal, normal) | ((bits & 0x8000) << 16));
#endif
}

ATTENTION_INLINE HalfVec narrow(Bfloat16, Vec values) {
  const IntVec bits = (IntVec)values, high = (bits >> 16) & 0xffff;
  const IntVec rounded = (bits + 0x7fff + (high & 1)) >> 16;  // ties to even; overflows into infinity as it should
  return __builtin_convertvector(select(values == values, rounded, high | 0x0040), HalfVec);  // NaN stays one, quiet
}

ATTENTION_INLINE HalfVec narrow(Float16, Vec values) {
#if defined(__AVX512F__)
  return (HalfVec)_mm512_maskz_cvtps_ph(0xffff, (__m512)values, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__AVX__) && defined(__F16C__)
  return (HalfVec)_mm256_cvtps_ph((__m256)values, _MM_FROUND_TO_NEAREST_INT);
#else
  const IntVec bits = (IntVec)values, magnitude = bits & 0x7fffffff;
  const IntVec normal = (magnitude - 0x38000000 + 0x0fff + ((magnitude >> 13) & 1)) >> 13;  // ties to even
  // Added to 1/2, a number below 2^-14 is rounded to multiples of 2^-24, the unit of the half subnormals.
  const IntVec subnormal = (IntVec)((Vec)magnitude + 0.5f) - 0x3f000000;
  IntVec half = select(magnitude < 0x38800000, subnormal, normal);
  half = select(magnitude >= 0x477ff000, IntVec{} + 0x7c00, half);  // 65520 and more: infinity
  half = select(magnitude > 0x7f800000, IntVec{} + 0x7e00, half);   // NaN
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000), HalfVec);
#endif
}

template <typename T>
void widen_row(const T *row, int64_t width, float *to) {
  for (int64_t i = 0; i < width; i += kLanes) {
    HalfVec halves = {};
    if (i + kLanes <= width) {
      std::memcpy(&halves, row + i, sizeof halves);
      store(to + i, widen(T(), halves));
    } else {
      std::memcpy(&halves, row + i, (width - i) * sizeof(T));
      const Vec values = widen(T(), halves);
      std::memcpy(to + i, &values, (width - i) * sizeof(float));
    }
  }
}

template <typename T>
void narrow_row(const float *row, int64_t width, T *to) {
  for (int64_t i = 0; i < width; i += kLanes) {
    if (i + kLanes <= width) {
      const HalfVec halves = narrow(T(), load(row + i));
      std::memcpy(to + i, &halves, sizeof halves);
    } else {
      Vec values = {};
      std::memcpy(&values, row + i, (width - i) * sizeof(float));
      const HalfVec halves = narrow(T(), values);
      std::memcpy(to + i, &halves, (width - i) * sizeof(T));
    }
  }
}

// Rows of floats in memory, each `stride` elements after the one before.
struct Rows {
  const float *data;
  int64_t stride;
};

// `count` rows of `width` elements as floats: the rows themselves if they are, otherwise a copy in `scratch`.
template <typename T>
Rows as_floats(const T *rows, int64_t stride, int64_t count, int64_t width, float *scratch) {
  for (int64_t i = 0; i < count; i++) widen_row(rows + i * stride, width, scratch + i * width);
  return {scratch, width};
}

template <>
inline Rows as_floats<float>(const float *rows, int64_t stride, int64_t, int64_t, float *) {
  return {rows, stride};
}

}  // namespace attention
