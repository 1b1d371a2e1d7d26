// What every fixture needs: a kernel without arguments, and a function that launches it and returns its fault.
#pragma once

#include "loop_device.cuh"

using namespace simt;

#define KERNEL(name, threads, shared_bytes)                                  \
  __global__ void name##_kernel();                                           \
  extern "C" const char *name() {                                            \
    launch<name##_kernel>(dim3(1), dim3(threads), shared_bytes, nullptr);    \
    return launch_error();                                                   \
  }                                                                          \
  __global__ void name##_kernel()

// Word `index` of shared memory.
SIMT_DEVICE SharedAddress word(int index) { return shared_base() + 4 * index; }

// The one place that knows how mma is called: d = a b + d.
template <typename T>
SIMT_DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma_m16n8k16<T>(d, a, b0, b1);
}
