// cp.async: who may touch its destination, and when. `source` is an array of the host.
#include "fixture.cuh"

SIMT_DEVICE const float *host_numbers() {
  alignas(16) static const float numbers[256] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
  return numbers;
}
SIMT_DEVICE SharedAddress piece(int index) { return shared_base() + 16 * index; }
SIMT_DEVICE void copy(int to, int from) {
  cp_async_16(piece(to), host_numbers() + 4 * from, true);  // copy: issues
}

KERNEL(copied, 64, 1024) {
  const int thread = threadIdx.x;
  copy(thread, thread);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  shared_load<Words4>(piece(63 - thread));
}
KERNEL(read_before_its_wait, 32, 512) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  shared_load<float>(piece(threadIdx.x));
}
KERNEL(written_before_its_wait, 32, 512) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  shared_store(piece(threadIdx.x), 1.0f);
}
KERNEL(copied_over_before_its_wait, 32, 512) {
  copy(threadIdx.x, 0);
  copy(threadIdx.x, 1);
}
KERNEL(not_committed, 32, 512) {
  copy(threadIdx.x, 0);
  cp_async_wait<0>();
  shared_load<float>(piece(threadIdx.x));
}
// A barrier does not wait for copies.
KERNEL(barrier_is_no_wait, 64, 1024) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  __syncthreads();
  shared_load<float>(piece(threadIdx.x));
}
// A wait is no barrier: it is for the thread's own copies.
KERNEL(wait_is_no_barrier, 64, 1024) {
  shared_store(piece(threadIdx.x), 0.0f);
  __syncthreads();
  if (threadIdx.x < 32) {
    shared_load<float>(piece(63 - threadIdx.x));  // wait_is_no_barrier: reads
  } else {
    copy(threadIdx.x, 0);
    cp_async_commit();
    cp_async_wait<0>();  // wait_is_no_barrier: waits
  }
}
KERNEL(own_copy_needs_no_barrier, 64, 1024) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  cp_async_wait<0>();
  shared_load<float>(piece(threadIdx.x));
}

// Two groups; the first is there when one may still be on its way.
KERNEL(first_of_two_groups, 32, 1024) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  copy(32 + threadIdx.x, 0);
  cp_async_commit();
  cp_async_wait<1>();
  shared_load<float>(piece(threadIdx.x));
}
KERNEL(second_of_two_groups, 32, 1024) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  copy(32 + threadIdx.x, 0);
  cp_async_commit();
  cp_async_wait<1>();
  shared_load<float>(piece(32 + threadIdx.x));
}
// Groups without copies count too.
KERNEL(empty_groups, 32, 512) {
  copy(threadIdx.x, 0);
  cp_async_commit();
  cp_async_commit();
  cp_async_commit();
  cp_async_wait<2>();
  shared_load<float>(piece(threadIdx.x));
}
KERNEL(never_waited_for, 32, 512) {
  copy(threadIdx.x, 0);
  cp_async_commit();
}

// The other warp may still read the tile that the copies go over.
template <bool kBarrier>
SIMT_DEVICE void refetch() {
  for (int round = 0; round < 3; round++) {
    copy(threadIdx.x, round);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    shared_load<float>(piece(63 - threadIdx.x));  // copies_over_a_read: reads
    if (kBarrier) __syncthreads();
  }
}
KERNEL(copies_after_a_barrier, 64, 1024) { refetch<true>(); }
KERNEL(copies_over_a_read, 64, 1024) { refetch<false>(); }

// A pipeline of two stages inside a warp, as a kernel has it: __syncwarp after the wait, and after the last read.
KERNEL(pipeline, 32, 1024) {
  const int lane = threadIdx.x;
  for (int stage = 0; stage < 2; stage++) {
    copy(stage * 32 + lane, stage);
    cp_async_commit();
  }
  for (int round = 0; round < 6; round++) {
    const int tile = round % 2 * 32;
    cp_async_wait<1>();
    __syncwarp();
    shared_load<Words4>(piece(tile + 31 - lane));
    __syncwarp();
    if (round < 4) copy(tile + lane, round);
    cp_async_commit();
  }
}

KERNEL(misaligned_destination, 1, 64) { cp_async_16(shared_base() + 8, host_numbers(), true); }
KERNEL(misaligned_source, 1, 64) { cp_async_16(shared_base(), host_numbers() + 1, true); }
KERNEL(destination_outside, 1, 64) { cp_async_16(shared_base() + 64, host_numbers(), true); }

// What is copied, seen from outside: 8 words by two lanes, the second one's not valid and its source nowhere.
__global__ void zeros_kernel(float *output) {
  const int lane = threadIdx.x;
  const bool valid = lane == 0;
  cp_async_16(piece(lane), valid ? host_numbers() : nullptr, valid);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; i++) global_store(output + 4 * lane + i, shared_load<float>(piece(lane) + 4 * i));
}
extern "C" const char *zeros(float *output) {
  launch<zeros_kernel>(dim3(1), dim3(2), 32, nullptr, output);
  return launch_error();
}
