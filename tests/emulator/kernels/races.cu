// Shared memory between threads: with what orders it, and without. Tests look lines up by their comments.
#include "fixture.cuh"

// Every thread writes a word of its own that all may touch from the next barrier on.
SIMT_DEVICE void prepare(int words) {
  for (int i = threadIdx.x; i < words; i += blockDim.x) shared_store(word(i), 1.0f);
  __syncthreads();
}

KERNEL(barrier, 64, 256) {
  const int thread = threadIdx.x;
  prepare(64);
  shared_store(word(thread), 2.0f);
  __syncthreads();
  shared_load<float>(word((thread + 32) % 64));
}
KERNEL(no_barrier, 64, 256) {
  const int thread = threadIdx.x;
  prepare(64);
  shared_store(word(thread), 2.0f);              // no_barrier: writes
  shared_load<float>(word((thread + 32) % 64));  // no_barrier: reads
}

KERNEL(warp_barrier, 32, 128) {
  const int thread = threadIdx.x;
  prepare(32);
  shared_store(word(thread), 2.0f);
  __syncwarp();
  shared_load<float>(word(thread ^ 1));
}
KERNEL(no_warp_barrier, 32, 128) {
  const int thread = threadIdx.x;
  prepare(32);
  shared_store(word(thread), 2.0f);      // no_warp_barrier: writes
  shared_load<float>(word(thread ^ 1));  // no_warp_barrier: reads
}
// Neither a shuffle nor a vote orders memory.
KERNEL(shuffle_is_no_barrier, 32, 128) {
  const int thread = threadIdx.x;
  prepare(32);
  shared_store(word(thread), 2.0f);  // shuffle_is_no_barrier: writes
  shuffle_xor(1.0f, 1);
  warp_any(true);
  shared_load<float>(word(thread ^ 1));  // shuffle_is_no_barrier: reads
}
KERNEL(warp_barrier_for_two_warps, 64, 256) {
  const int thread = threadIdx.x;
  prepare(64);
  shared_store(word(thread), 2.0f);  // warp_barrier_for_two_warps: writes
  __syncwarp();
  shared_load<float>(word((thread + 32) % 64));  // warp_barrier_for_two_warps: reads
}

// A tile is filled by all and read by all, again and again.
template <bool kBarrier>
SIMT_DEVICE void refill() {
  const int thread = threadIdx.x;
  prepare(96);
  for (int round = 0; round < 3; round++) {
    shared_store(word(thread), float(round));  // no_barrier_before_refill: writes
    __syncthreads();
    for (int i = 0; i < 96; i++) shared_load<float>(word(i));  // no_barrier_before_refill: reads
    if (kBarrier) __syncthreads();
  }
}
KERNEL(barrier_before_refill, 96, 384) { refill<true>(); }
KERNEL(no_barrier_before_refill, 96, 384) { refill<false>(); }

// A thread of each of three warps reads a word, then one of them writes it.
template <int kWarp, bool kBarrier>
SIMT_DEVICE void overwrite() {
  prepare(1);
  if (threadIdx.x % 32 == 5) shared_load<float>(word(0));
  if (kBarrier) __syncthreads();
  if (threadIdx.x == kWarp * 32 + 5) shared_store(word(0), 2.0f);
}
KERNEL(overwrite_by_warp_0, 96, 4) { overwrite<0, false>(); }
KERNEL(overwrite_by_warp_1, 96, 4) { overwrite<1, false>(); }
KERNEL(overwrite_by_warp_2, 96, 4) { overwrite<2, false>(); }
KERNEL(overwrite_after_a_barrier, 96, 4) { overwrite<1, true>(); }

// All lanes read a word, then one of them writes it.
KERNEL(overwrite_what_the_warp_reads, 32, 4) {
  prepare(1);
  shared_load<float>(word(0));
  if (threadIdx.x == 31) shared_store(word(0), 2.0f);
}
KERNEL(overwrite_after_a_warp_barrier, 32, 4) {
  prepare(1);
  shared_load<float>(word(0));
  __syncwarp();
  if (threadIdx.x == 31) shared_store(word(0), 2.0f);
}

// A word goes from lane to lane.
KERNEL(handed_on, 32, 4) {
  prepare(1);
  for (int lane = 0; lane < 32; lane++) {
    if (int(threadIdx.x) == lane) shared_store(word(0), shared_load<float>(word(0)) + 1.0f);
    __syncwarp();
  }
}

// Two buffers: while one is read the other is written, and a barrier a round is enough.
KERNEL(two_buffers, 64, 512) {
  const int thread = threadIdx.x;
  shared_store(word(thread), 0.0f);
  __syncthreads();
  for (int round = 0; round < 6; round++) {
    const int from = round % 2 * 64, to = 64 - from;
    shared_store(word(to + thread), shared_load<float>(word(from + (thread + 32) % 64)) + 1.0f);
    __syncthreads();
  }
}

// Elements of two bytes that share a word belong to different threads.
KERNEL(neighbours, 64, 128) {
  const int thread = threadIdx.x;
  shared_store(shared_base() + 2 * thread, from_float<__half>(1.0f));
  __syncthreads();
  shared_load<float>(word(thread / 2));
}

// Whole words first, then halves of the same words by different threads.
KERNEL(words_then_halves, 64, 128) {
  const int thread = threadIdx.x;
  if (thread < 32) shared_store(word(thread), 1.0f);
  __syncthreads();
  shared_store(shared_base() + 2 * thread, from_float<__half>(1.0f));
  __syncthreads();
  shared_load<float>(word(thread / 2));
}
KERNEL(half_of_a_word, 64, 128) {
  const int thread = threadIdx.x;
  prepare(32);
  if (thread < 32) shared_store(word(thread), 2.0f);  // half_of_a_word: writes
  if (thread >= 32) shared_load<__half>(word(thread - 32) + 2);  // half_of_a_word: reads
}

// One instruction of a warp may write one value to one place: no lane's order shows.
KERNEL(same_value_by_a_warp, 32, 4) {
  shared_store(word(0), 1.0f);
  __syncwarp();
  shared_load<float>(word(0));
}
KERNEL(different_values_by_a_warp, 32, 4) { shared_store(word(0), float(threadIdx.x)); }
KERNEL(same_value_by_two_warps, 64, 4) { shared_store(word(0), 1.0f); }
KERNEL(same_value_by_two_instructions, 32, 4) {
  if (threadIdx.x == 0) shared_store(word(0), 1.0f);
  if (threadIdx.x == 1) shared_store(word(0), 1.0f);
}

KERNEL(unwritten, 32, 256) {
  shared_store(word(threadIdx.x), 1.0f);
  __syncwarp();
  shared_load<float>(word(32));
}
KERNEL(half_unwritten, 1, 4) {
  shared_store(word(0), from_float<__half>(1.0f));
  shared_load<float>(word(0));
}

// As many __syncwarp between two barriers as can be told apart, and more.
template <int kTimes>
SIMT_DEVICE void meet_often() {
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < kTimes; i++) __syncwarp();
    __syncthreads();
  }
}
KERNEL(many_warp_barriers, 32, 0) { meet_often<(1 << 14) - 1>(); }
KERNEL(too_many_warp_barriers, 32, 0) { meet_often<1 << 14>(); }
KERNEL(too_many_barriers, 1, 0) {
  for (;;) __syncthreads();
}
