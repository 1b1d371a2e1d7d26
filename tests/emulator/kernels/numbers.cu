// Conversions between element types, for the host.
#include "fixture.cuh"

extern "C" void half_to_float(const uint16_t *bits, float *values, long count) {
  for (long i = 0; i < count; i++) values[i] = to_float(__half{bits[i]});
}
extern "C" void bfloat_to_float(const uint16_t *bits, float *values, long count) {
  for (long i = 0; i < count; i++) values[i] = to_float(__nv_bfloat16{bits[i]});
}
extern "C" void float_to_half(const float *values, uint16_t *bits, long count) {
  for (long i = 0; i < count; i++) bits[i] = from_float<__half>(values[i]).bits;
}
extern "C" void float_to_bfloat(const float *values, uint16_t *bits, long count) {
  for (long i = 0; i < count; i++) bits[i] = from_float<__nv_bfloat16>(values[i]).bits;
}
extern "C" void pack_halves(const float *values, uint32_t *pairs, long count) {
  for (long i = 0; i < count; i++) pairs[i] = pack<__half>(values[2 * i], values[2 * i + 1]);
}
extern "C" void powers_of_two(const float *values, float *powers, long count) {
  for (long i = 0; i < count; i++) powers[i] = exp2_approx(values[i]);
}
