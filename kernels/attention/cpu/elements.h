// The element types of the tensors, and rows of them as rows of floats.
//
// The kernel computes in fp32. bfloat16 and float16 exist at its edges alone: a tile of rows is widened into
// scratch memory before use, a finished block of rows is rounded to nearest-even on its way out. The
// conversions are branch-free scalar code that the compiler vectorises, so they need no instruction set; each
// widened tile is then used by dozens of queries, which hides them.
#pragma once

#include <cstdint>
#include <cstring>

namespace attention {

struct Bfloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float widen(float value) { return value; }

inline float widen(Bfloat16 value) { return float_of(uint32_t{value.bits} << 16); }

inline float widen(Float16 value) {
  const uint32_t magnitude = uint32_t{value.bits} & 0x7fff;
  const uint32_t sign = (uint32_t{value.bits} & 0x8000) << 16;
  // Rebias the exponent by 127 - 15; infinity and NaN need as much again to reach the top exponent.
  const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 0x70000000u : 0x38000000u);
  // A subnormal is magnitude * 2^-24: put its bits below a 2^-14 with the same unit, and take that away again.
  const float subnormal = float_of((magnitude << 13) + 0x38800000u) - 0x1p-14f;
  return float_of((magnitude < 0x0400 ? bits_of(subnormal) : normal) | sign);
}

inline void narrow(float value, float &to) { to = value; }

inline void narrow(float value, Bfloat16 &to) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // ties to even
  const uint32_t quiet_nan = (bits >> 16) | 0x0040;                     // rounding could turn a NaN into infinity
  to.bits = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

inline void narrow(float value, Float16 &to) {
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t normal = (magnitude - 0x38000000u + 0x0fff + ((magnitude >> 13) & 1)) >> 13;  // ties to even
  // Adding 1/2 lines the last bit of a half subnormal (2^-24) up with the last bit of the sum: the adder rounds.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  uint32_t half = magnitude < 0x38800000 ? subnormal : normal;   // below 2^-14
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;                // rounds beyond 65504: infinity
  half = magnitude > 0x7f800000 ? 0x7e00 : half;                 // NaN
  to.bits = static_cast<uint16_t>(half | sign);
}

// Rows of floats in memory: `count` of them, each `stride` elements after the one before.
struct Rows {
  const float *data;
  int64_t stride;
};

// `count` rows of `width` elements as floats: the rows themselves when they are, or a widened copy in `scratch`.
template <typename T>
Rows as_floats(const T *rows, int64_t stride, int64_t count, int64_t width, float *scratch) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < width; j++) scratch[i * width + j] = widen(rows[i * stride + j]);
  return {scratch, width};
}

template <>
inline Rows as_floats<float>(const float *rows, int64_t stride, int64_t, int64_t, float *) {
  return {rows, stride};
}

}  // namespace attention
