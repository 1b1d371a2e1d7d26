// The two-byte element types of CUDA, with the names and the size that they have there.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

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

inline float half_to_float(uint16_t half) {
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return as_float(sign | 0x7f800000 | mantissa << 13);
  const float magnitude = exponent ? std::ldexp(static_cast<float>(mantissa + 1024), static_cast<int>(exponent) - 25)
                                   : std::ldexp(static_cast<float>(mantissa), -24);
  return sign ? -magnitude : magnitude;
#endif
}

// Rounds to nearest, ties to even, as cvt.rn does.
inline uint16_t float_to_half(float value) {
#if defined(__F16C__)
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
  const uint16_t sign = static_cast<uint16_t>(as_bits(value) >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 6.103515625e-5f)  // Below 2^-14: steps of 2^-24.
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  const uint32_t bits = as_bits(magnitude), odd = bits >> 13 & 1;
  return static_cast<uint16_t>(sign | ((bits + 0xfff + odd - (112u << 23)) >> 13));
#endif
}

inline float bfloat_to_float(uint16_t bits) { return as_float(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = as_bits(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace simt::emulator
