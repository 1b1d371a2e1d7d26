// A tiny CUDA variant, right and in several ways not: doubles a float matrix. For tests of the CUDA layer.
#include <assert.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "loop_kernel.h"

#define LATE_NS 20000000ull
#define SPIN_NS 120000000000ull  // A kernel that hangs ends by itself after two minutes, should nobody be able to kill it.
#define LARGE 32  // Rows above which some variants fail.

static __device__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

static __global__ void scale(const float *x, float *y, int64_t count, uint64_t delay_ns) {
  const uint64_t begin = now_ns();
  while (now_ns() - begin < delay_ns) __nanosleep(1000);
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = 2.0f * x[i];
}

static __device__ volatile int never = 0;

static __global__ void spin() {
  const uint64_t begin = now_ns();
  while (never == 0 && now_ns() - begin < SPIN_NS) {
  }
}

static int launch(const LoopTensor *inputs, LoopTensor *outputs, uint64_t delay_ns, void *stream) {
  if (inputs[0].strides[1] != 1 || inputs[0].strides[0] != inputs[0].sizes[1]) return (int)cudaErrorNotSupported;
  const int64_t count = inputs[0].sizes[0] * inputs[0].sizes[1];
  const float *x = (const float *)inputs[0].data;
  const unsigned blocks = (unsigned)((count + 255) / 256);
  scale<<<blocks, 256, 0, (cudaStream_t)stream>>>(x, (float *)outputs[0].data, count, delay_ns);
  return (int)cudaGetLastError();
}

#define ENTRY(name) \
  LOOP_EXPORT int name(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *stream)

LOOP_EXPORT const char *loop_error(int error) { return cudaGetErrorName((cudaError_t)error); }

ENTRY(right) { return launch(inputs, outputs, 0, stream); }

// Launches on a stream of its own, and nobody waits for it there.
ENTRY(side_stream) {
  static cudaStream_t side = nullptr;
  if (side == nullptr) {
    const cudaError_t error = cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    if (error != cudaSuccess) return (int)error;
  }
  (void)stream;
  return launch(inputs, outputs, LATE_NS, side);
}

ENTRY(synchronises) {
  const int error = launch(inputs, outputs, 0, stream);
  return error != 0 ? error : (int)cudaDeviceSynchronize();
}

ENTRY(default_stream) {
  (void)stream;
  return launch(inputs, outputs, LATE_NS, cudaStreamLegacy);
}

ENTRY(nothing) {
  (void)inputs, (void)outputs, (void)stream;
  return 0;
}

ENTRY(crashes) {
  LoopTensor broken = outputs[0];
  broken.data = (void *)16;
  return launch(inputs, &broken, 0, stream);
}

// Right on small inputs, and a fault on others.
ENTRY(stumbles) {
  return (inputs[0].sizes[0] > LARGE ? crashes : right)(inputs, outputs, nullptr, stream);
}

// The same, and the caller hears of the fault as an error of this call.
ENTRY(stumbles_aloud) {
  const int error = stumbles(inputs, outputs, nullptr, stream);
  return error != 0 ? error : (int)cudaDeviceSynchronize();
}

// Right on small inputs; on others it waits for what never comes.
ENTRY(hangs) {
  if (inputs[0].sizes[0] <= LARGE) return launch(inputs, outputs, 0, stream);
  spin<<<1, 1, 0, (cudaStream_t)stream>>>();
  return (int)cudaGetLastError();
}

static __global__ void write_misaligned(float *y) { *(volatile double *)((char *)y + 1) = 0.0; }

ENTRY(misaligned) {
  write_misaligned<<<1, 1, 0, (cudaStream_t)stream>>>((float *)outputs[0].data);
  return launch(inputs, outputs, 0, stream);
}

static __global__ void assert_false() { assert(never != 0); }

ENTRY(asserts) {
  assert_false<<<1, 1, 0, (cudaStream_t)stream>>>();
  return launch(inputs, outputs, 0, stream);
}

// Takes all memory that is left, and keeps it.
ENTRY(exhausts) {
  (void)inputs, (void)outputs, (void)stream;
  void *taken = nullptr;
  for (size_t bytes = (size_t)1 << 34; bytes >= ((size_t)1 << 20); bytes /= 2)
    while (cudaMalloc(&taken, bytes) == cudaSuccess) {
    }
  return (int)cudaErrorMemoryAllocation;
}
