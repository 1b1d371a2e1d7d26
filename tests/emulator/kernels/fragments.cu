// ldmatrix and mma on registers that the host gives and takes: 32 lanes, as they lie.
#include "fixture.cuh"

// `rows`: 32 rows of 8 elements, one for the address of each lane. A lane keeps its row at address[lane].
__global__ void ldmatrix_kernel(const Words4 *rows, const uint32_t *addresses, uint32_t *registers, bool transposed) {
  const int lane = threadIdx.x;
  const SharedAddress place = shared_base() + global_load(addresses + lane);
  shared_store(place, global_load(rows + lane));
  __syncwarp();
  uint32_t found[4];
  transposed ? ldmatrix_x4_transposed(found, place) : ldmatrix_x4(found, place);
  for (int i = 0; i < 4; i++) global_store(registers + 4 * lane + i, found[i]);
}
extern "C" const char *ldmatrix(const Words4 *rows, const uint32_t *addresses, uint32_t *registers, int transposed) {
  launch<ldmatrix_kernel>(dim3(1), dim3(32), 8192, nullptr, rows, addresses, registers, transposed != 0);
  return launch_error();
}

template <typename T>
__global__ void mma_kernel(const uint32_t *a, const uint32_t *b, const float *c, float *d) {
  const int lane = threadIdx.x;
  uint32_t left[4];
  float sums[4];
  for (int i = 0; i < 4; i++) left[i] = global_load(a + 4 * lane + i);
  for (int i = 0; i < 4; i++) sums[i] = global_load(c + 4 * lane + i);
  multiply_add<T>(sums, left, global_load(b + 2 * lane), global_load(b + 2 * lane + 1));
  for (int i = 0; i < 4; i++) global_store(d + 4 * lane + i, sums[i]);
}
extern "C" const char *mma(const uint32_t *a, const uint32_t *b, const float *c, float *d, int bfloat) {
  bfloat ? launch<mma_kernel<__nv_bfloat16>>(dim3(1), dim3(32), 0, nullptr, a, b, c, d)
         : launch<mma_kernel<__half>>(dim3(1), dim3(32), 0, nullptr, a, b, c, d);
  return launch_error();
}
