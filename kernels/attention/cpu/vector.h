// SIMD of the widest kind the compiler was told about, written with GCC vector extensions (g++, clang).
//
// One source serves SSE2 and NEON (4 lanes), AVX (8) and AVX-512 (16): the kernel is written in terms of kLanes and
// kRegisters, and instruction sets are named here and in elements.h alone. `scalar * vector` splats, `mask ? a : b`
// selects, and -ffp-contract=fast turns `acc += a * b` into a fused multiply-add where the machine has one.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifdef __FAST_MATH__
#error "build without -ffast-math: the exponential and the NaN rules below depend on IEEE arithmetic"
#endif

namespace attention {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRegisters = 32;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif

using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntVec = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Quad = float __attribute__((vector_size(4 * sizeof(float))));  // the unit of a transpose

#define ATTENTION_INLINE inline __attribute__((always_inline))

// memcpy is how a vector is read from an address aligned for a float only; it compiles to one load.
ATTENTION_INLINE Vec load(const float *from) {
  Vec value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

ATTENTION_INLINE void store(float *to, Vec value) { std::memcpy(to, &value, sizeof value); }

ATTENTION_INLINE Quad load_quad(const float *from) {
  Quad value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

ATTENTION_INLINE void store_quad(float *to, Quad value) { std::memcpy(to, &value, sizeof value); }

ATTENTION_INLINE Vec splat(float value) { return value - Vec{}; }

ATTENTION_INLINE Vec select(IntVec mask, Vec yes, Vec no) { return mask ? yes : no; }

// The larger of the two; where one is NaN, `b`: the rule of maxps, which g++ 12 does not recognise in `a > b ? a : b`.
ATTENTION_INLINE Vec larger(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);  // g++ 12 warns about the header of _mm512_max_ps
#elif defined(__AVX__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
  return (Vec)_mm_max_ps((__m128)a, (__m128)b);
#else
  return a > b ? a : b;
#endif
}

// Keeps a loaded vector in a register. Without it g++ turns each of its uses into another load from memory, and a
// register tile that is bound by its multiply-adds becomes one that is bound by its loads (16 for 12 instead of 7).
ATTENTION_INLINE Vec hold(Vec value) {
#if defined(__SSE2__)
  __asm__("" : "+v"(value));
#elif defined(__aarch64__)
  __asm__("" : "+w"(value));
#endif
  return value;
}

// 0, 1, 2, ... across the lanes.
ATTENTION_INLINE IntVec lane_numbers() {
  IntVec lanes;
  for (int i = 0; i < kLanes; i++) lanes[i] = i;
  return lanes;
}

// rows[i][j] becomes rows[j][i].
ATTENTION_INLINE void transpose(Quad (&rows)[4]) {
  const Quad low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Quad low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Quad high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Quad high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

}  // namespace attention
