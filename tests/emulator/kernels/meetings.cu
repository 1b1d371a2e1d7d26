// What threads do together: together, and not.
#include "fixture.cuh"

SIMT_DEVICE void fetch(bool transposed = false) {
  uint32_t registers[4];
  transposed ? ldmatrix_x4_transposed(registers, shared_base()) : ldmatrix_x4(registers, shared_base());
}
template <int kPlace = 0>
SIMT_DEVICE void multiply() {
  float d[4] = {};
  const uint32_t a[4] = {};
  if constexpr (kPlace == 0) {
    multiply_add<__half>(d, a, 0, 0);
  } else {
    mma_m16n8k16<__half>(d, a, 0, 0);  // Another line than multiply_add's.
  }
}
SIMT_DEVICE int lane() { return threadIdx.x % 32; }

KERNEL(half_a_warp_shuffles, 32, 0) {
  if (lane() < 16) shuffle_xor(1.0f, 1);  // half_a_warp_shuffles: shuffles
  __syncthreads();                        // half_a_warp_shuffles: waits
}
KERNEL(half_a_warp_votes, 32, 0) {
  if (lane() < 16) warp_any(true);
  __syncwarp();
}
KERNEL(half_a_warp_fetches, 32, 512) {
  if (lane() < 16) fetch();
  __syncthreads();
}
KERNEL(half_a_warp_fetches_transposed, 32, 512) {
  shared_store(shared_base() + 16 * lane(), Words4{0, 0, 0, 0});
  __syncwarp();
  fetch(lane() < 16);
}
KERNEL(half_a_warp_multiplies, 32, 0) {
  if (lane() < 16) multiply();
  __syncthreads();
}
// Aligned instructions have to be the same one.
KERNEL(multiplies_at_two_places, 32, 0) {
  if (lane() < 16) {
    multiply();
  } else {
    multiply<1>();
  }
}
KERNEL(multiplies_after_a_lane_has_returned, 32, 0) {
  if (lane() == 7) return;
  multiply();
}
KERNEL(fetches_after_a_lane_has_returned, 32, 512) {
  if (lane() == 7) return;
  fetch();
}
KERNEL(multiplies_with_part_of_a_warp, 40, 0) { multiply(); }

// Others need not be one instruction, nor wait for lanes that have returned.
KERNEL(meets_at_two_places, 32, 128) {
  shared_store(word(lane()), 1.0f);
  if (lane() < 16) {
    __syncwarp();
    shuffle_xor(shared_load<float>(word(lane() ^ 16)), 16);
  } else {
    __syncwarp();
    shuffle_xor(shared_load<float>(word(lane() ^ 16)), 16);
  }
}
KERNEL(goes_on_without_a_lane, 32, 128) {
  if (lane() >= 16) return;
  shared_store(word(lane()), 1.0f);
  __syncwarp();
  shared_load<float>(word(lane() ^ 8));
  warp_any(true);
  shuffle_xor(1.0f, 8);
}
KERNEL(shuffles_from_a_lane_that_has_returned, 32, 0) {
  if (lane() >= 16) return;
  shuffle_xor(1.0f, 16);
}
KERNEL(shuffles_from_a_lane_that_never_was, 40, 0) { shuffle_xor(1.0f, 8); }
KERNEL(part_of_a_warp, 40, 160) {
  shared_store(word(threadIdx.x), 1.0f);
  __syncwarp();
  warp_any(true);
  shuffle_xor(1.0f, 4);
  __syncthreads();
  shared_load<float>(word(39 - threadIdx.x));
}

// __syncthreads is for all threads of the block, at one place.
KERNEL(a_thread_returns_before_a_barrier, 64, 0) {
  if (threadIdx.x == 33) return;
  __syncthreads();  // a_thread_returns_before_a_barrier: waits
}
KERNEL(a_warp_returns_before_a_barrier, 64, 0) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
}
KERNEL(two_different_barriers, 64, 0) {
  if (threadIdx.x < 32) {
    __syncthreads();  // two_different_barriers: one
  } else {
    __syncthreads();  // two_different_barriers: other
  }
}
KERNEL(a_barrier_more_for_a_warp, 64, 0) {
  for (int i = 0; i < (threadIdx.x < 32 ? 3 : 2); i++) __syncthreads();
}
KERNEL(barriers_where_all_threads_are, 64, 256) {
  for (int round = 0; round < 4; round++) {
    shared_store(word(threadIdx.x), float(round));
    if (round % 2 == 0) {
      __syncthreads();
    } else if (blockIdx.x == 0) {
      __syncthreads();
    }
    shared_load<float>(word(63 - threadIdx.x));
    __syncthreads();
    if (threadIdx.x / 32 == 1) continue;
    warp_any(true);
  }
}

KERNEL(spins, 1, 4) {
  shared_store(word(0), 0.0f);
  while (shared_load<float>(word(0)) == 0.0f) {
  }
}

// Which thread of which block: six numbers each, in the order of their places.
__global__ void indices_kernel(unsigned *output) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned *place = output + 6 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
  const unsigned numbers[6] = {blockIdx.z, blockIdx.y, blockIdx.x, threadIdx.z, threadIdx.y, threadIdx.x};
  for (int i = 0; i < 6; i++) global_store(place + i, numbers[i]);
}
// The same shape for a kernel that does nothing.
__global__ void idle_kernel() {}

extern "C" const char *indices(const unsigned *grid, const unsigned *block, unsigned *output) {
  launch<indices_kernel>(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), 0, nullptr, output);
  return launch_error();
}
extern "C" const char *idle(const unsigned *grid, const unsigned *block, unsigned long shared_bytes) {
  launch<idle_kernel>(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared_bytes, nullptr);
  return launch_error();
}

// A sum over a block in every way there is, to be the same in any order of threads: shuffles, shared memory, a
// vote, and copies. [blocks x 64] numbers in, a number a block out.
__global__ void sum_kernel(const float *input, float *output) {
  const int thread = threadIdx.x, warp = thread / 32;
  cp_async_16(shared_base() + 16 * thread, input + 64 * blockIdx.x + thread / 4 * 4, true);
  cp_async_commit();
  cp_async_wait<0>();
  float sum = shared_load<float>(shared_base() + 16 * thread + thread % 4 * 4);
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (warp_any(lane() == 3)) sum *= 2.0f;
  __syncthreads();
  if (lane() == 0) shared_store(word(warp), sum);
  __syncthreads();
  if (thread == 0) global_store(output + blockIdx.x, shared_load<float>(word(0)) + shared_load<float>(word(1)));
}
extern "C" const char *sum(const float *input, float *output, int blocks) {
  launch<sum_kernel>(dim3(blocks), dim3(64), 1024, nullptr, input, output);
  return launch_error();
}

// Faults in many blocks: the same one is told on any number of CPU threads.
__global__ void many_faults_kernel() {
  if (blockIdx.x < 5) return;
  for (unsigned i = 0; i < 40 * (32 - blockIdx.x); i++) __syncwarp();  // Later blocks are sooner there.
  if (threadIdx.x == blockIdx.x) shared_load<float>(word(threadIdx.x));
}
extern "C" const char *many_faults() {
  launch<many_faults_kernel>(dim3(32), dim3(32), 128, nullptr);
  return launch_error();
}

// Accumulators that nobody has set.
__global__ void unset_kernel(float *output) {
  float d[4];
  const uint32_t a[4] = {};
  multiply_add<__half>(d, a, 0, 0);
  global_store(output + threadIdx.x, d[0]);
}
extern "C" const char *unset(float *output) {
  launch<unset_kernel>(dim3(1), dim3(32), 0, nullptr, output);
  return launch_error();
}

// A stack that is too small: by many frames, and by one.
__device__ __attribute__((noinline)) int descend(int depth) {
  volatile int below = depth > 0 ? descend(depth - 1) : 0;
  return below + 1;
}
KERNEL(recursion, 32, 0) { descend(1 << 24); }
KERNEL(large_frame, 32, 0) {
  volatile char large[300 << 10];
  large[0] = 1;
  large[sizeof large - 1] = 1;
}
