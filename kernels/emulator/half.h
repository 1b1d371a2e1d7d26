// The two-byte element types of CUDA, with the names and the size that they have there.
#pragma once

#include <cstdint>
#include <cstring>

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

namespace simt::emulator {

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// A half has 5 bits of exponent and 10 of mantissa, a float 8 and 23: exponents differ by 112, mantissas by 13 bits.
// Without branches, so that a compiler turns a loop of it into vectors.
inline float half_to_float(uint16_t half) {
  constexpr uint32_t kShift = 112u << 23, kFirst = 113u << 23;  // kFirst: 2^-14, the least that is not subnormal.
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, magnitude = half & 0x7fff;
  const uint32_t subnormal = as_bits(as_float((magnitude << 13) + kFirst) - as_float(kFirst));
  const uint32_t normal = (magnitude << 13) + kShift + (magnitude >= 0x7c00 ? kShift : 0);
  return as_float(sign | (magnitude < 0x400 ? subnormal : normal));
}

// Rounds to nearest, ties to even, and knows one NaN, as cvt.rn does.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = as_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= as_bits(65520.0f)) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < as_bits(0x1p-14f))  // Steps of 2^-24: those of floats from 0.5 to 1.
    return static_cast<uint16_t>(sign | (as_bits(as_float(magnitude) + 0.5f) - as_bits(0.5f)));
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | (magnitude + 0xfff + odd - (112u << 23)) >> 13);
}

inline float bfloat_to_float(uint16_t bits) { return as_float(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = as_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace simt::emulator
