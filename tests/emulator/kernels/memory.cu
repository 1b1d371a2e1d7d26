// Memory that a kernel may not touch, shared and global.
#include "fixture.cuh"

KERNEL(shared_beyond_its_end, 1, 256) { shared_store(word(64), 1.0f); }
KERNEL(shared_across_its_end, 1, 260) { shared_store(word(64), Words4{0, 0, 0, 0}); }
KERNEL(shared_before_its_begin, 1, 256) { shared_load<float>(shared_base() - 4); }
KERNEL(shared_that_was_not_asked_for, 1, 0) { shared_store(word(0), 1.0f); }
KERNEL(shared_misaligned_word, 1, 256) { shared_store(shared_base() + 2, 1.0f); }
KERNEL(shared_misaligned_piece, 1, 256) { shared_load<Words4>(shared_base() + 8); }
KERNEL(shared_misaligned_row, 32, 1024) {
  uint32_t registers[4];
  ldmatrix_x4(registers, shared_base() + 16 * threadIdx.x + 8);
}

// Global memory: `input` and `output` are exposed with these sizes.
struct Tensors {
  const float *input;
  float *output;
  int offset;  // What a kernel adds to where it reads or writes; in elements, or in bytes.
};

#define GLOBAL_BY(how, name, blocks, threads)                                                                \
  __global__ void name##_kernel(const Tensors tensors);                                                      \
  extern "C" const char *name(const float *input, long in_bytes, float *output, long out_bytes, int offset) { \
    withdraw_all();                                                                                          \
    expose(input, static_cast<size_t>(in_bytes), "the input", false);                                        \
    expose(output, static_cast<size_t>(out_bytes), "the output", true);                                      \
    const Tensors tensors{input, output, offset};                                                            \
    how<name##_kernel>(dim3(blocks), dim3(threads), 64, nullptr, tensors);                                   \
    withdraw_all();                                                                                          \
    return launch_error();                                                                                   \
  }                                                                                                          \
  __global__ void name##_kernel(const Tensors tensors)
#define GLOBAL(name, blocks, threads) GLOBAL_BY(launch, name, blocks, threads)

SIMT_DEVICE int position() { return blockIdx.x * blockDim.x + threadIdx.x; }
SIMT_DEVICE char *bytes(const void *data, int offset) { return static_cast<char *>(const_cast<void *>(data)) + offset; }

GLOBAL(scale, 2, 32) {
  const int i = position();
  global_store(tensors.output + i, 2.0f * global_load(tensors.input + i));
}
GLOBAL(reads_input_at, 1, 1) { global_load(tensors.input + tensors.offset); }
GLOBAL(reads_output_at, 1, 1) { global_load(tensors.output + tensors.offset); }
GLOBAL(writes_output_at, 1, 1) { global_store(tensors.output + tensors.offset, 1.0f); }
GLOBAL(writes_input_at, 1, 1) { global_store(const_cast<float *>(tensors.input) + tensors.offset, 1.0f); }
GLOBAL(copies_input_at, 1, 1) { cp_async_16(shared_base(), tensors.input + tensors.offset, true); }
GLOBAL(reads_word_at_byte, 1, 1) {
  global_load(reinterpret_cast<const float *>(bytes(tensors.input, tensors.offset)));
}
GLOBAL(writes_piece_at_byte, 1, 1) {
  global_store(reinterpret_cast<Words4 *>(bytes(tensors.output, tensors.offset)), Words4{0, 0, 0, 0});
}
struct Three {
  float x, y, z;
};
GLOBAL(writes_three_words, 1, 4) {
  global_store(reinterpret_cast<Three *>(tensors.output) + threadIdx.x, Three{1.0f, 2.0f, 3.0f});
}

// Blocks, or threads of a block, that meet in one element.
GLOBAL(two_blocks_write, 2, 1) { global_store(tensors.output, 1.0f); }
GLOBAL(a_block_reads_what_another_writes, 2, 1) {
  if (blockIdx.x == 0) global_store(tensors.output, 1.0f);
  if (blockIdx.x == 1) global_load(tensors.output);
}
GLOBAL(a_block_writes_what_another_reads, 2, 1) {
  if (blockIdx.x == 0) global_load(tensors.output);
  if (blockIdx.x == 1) global_store(tensors.output, 1.0f);
}
GLOBAL(two_blocks_write_bytes_of_a_word, 2, 1) {
  global_store(reinterpret_cast<uint8_t *>(tensors.output) + blockIdx.x, uint8_t(1));
}
GLOBAL(two_threads_write, 1, 64) {
  if (threadIdx.x == 3) global_store(tensors.output, 1.0f);   // two_threads_write: first
  if (threadIdx.x == 40) global_store(tensors.output, 2.0f);  // two_threads_write: second
}
GLOBAL(two_lanes_write, 1, 32) { global_store(tensors.output + threadIdx.x / 2, float(threadIdx.x)); }
GLOBAL(a_warp_writes_one_value, 1, 32) { global_store(tensors.output, 1.0f); }
GLOBAL(a_thread_reads_what_another_wrote, 1, 64) {
  global_store(tensors.output + threadIdx.x, 0.0f);
  __syncthreads();
  global_store(tensors.output + threadIdx.x, 1.0f);
  global_load(tensors.output + 63 - threadIdx.x);
}
GLOBAL(global_memory_with_barriers, 1, 64) {
  const int thread = threadIdx.x;
  for (int round = 0; round < 3; round++) {
    global_store(tensors.output + (thread + 32 * round) % 64, float(round));
    __syncthreads();
    global_load(tensors.output + 63 - thread);
    __syncthreads();
  }
  global_store(tensors.output + (thread ^ 1), 1.0f);
  __syncwarp();
  global_load(tensors.output + thread);
}

// Kernels that may begin while the one before them runs.
GLOBAL_BY(launch_early, waits_first, 1, 8) {
  allow_next();
  shared_store(word(threadIdx.x), 2.0f);
  wait_for_previous();
  global_store(tensors.output + threadIdx.x, shared_load<float>(word(threadIdx.x)) * global_load(tensors.input + threadIdx.x));
}
GLOBAL_BY(launch_early, reads_too_early, 1, 8) {
  const float value = global_load(tensors.input + threadIdx.x);
  wait_for_previous();
  global_store(tensors.output + threadIdx.x, value);
}
GLOBAL_BY(launch_early, writes_too_early, 1, 8) { global_store(tensors.output + threadIdx.x, 1.0f); }
GLOBAL_BY(launch_early, copies_too_early, 1, 1) { cp_async_16(shared_base(), tensors.input, true); }
