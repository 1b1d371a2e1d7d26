// Doubles a float matrix on the fake GPU, right and in several ways not: host code that a fake nvcc gives to g++.
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

#include "loop_kernel.h"

struct Work {
  const float *x;
  float *y;
  int64_t count;
};
using Kernel = void (*)(void *);

static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }

static void scale(void *argument) {
  const Work *work = (const Work *)argument;
  for (int64_t i = 0; i < work->count; ++i) work->y[i] = 2.0f * work->x[i];
}
static void poke(void *argument) {
  const Work *work = (const Work *)argument;
  scale(argument);
  work->y[work->count + 1] = 1.0f;
}
static void peek(void *argument) {
  const Work *work = (const Work *)argument;
  scale(argument);
  work->y[0] += 0.0f * work->x[-1];
}
static void crash(void *) { ((void (*)(int))driver("fakeFault"))(700); }
static void spin(void *) {
  for (volatile int flag = 0; flag == 0;) usleep(1000);
}

static int launch(const LoopTensor *inputs, LoopTensor *outputs, void *stream, Kernel kernel) {
  const LoopTensor &x = inputs[0];
  if (x.strides[1] != 1 || x.strides[0] != x.sizes[1]) return 801;
  const Work work = {(const float *)x.data, (float *)outputs[0].data, x.sizes[0] * x.sizes[1]};
  using Launch = int (*)(void *, Kernel, const void *, size_t);
  return ((Launch)driver("fakeLaunch"))(stream, kernel, &work, sizeof work);
}

#define ENTRY(name) LOOP_EXPORT int name(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *stream)

LOOP_EXPORT const char *loop_error(int error) { return error == 801 ? "cudaErrorNotSupported" : "cudaErrorUnknown"; }

ENTRY(right) { return launch(inputs, outputs, stream, scale); }
ENTRY(pokes) { return launch(inputs, outputs, stream, poke); }
ENTRY(peeks) { return launch(inputs, outputs, stream, peek); }
ENTRY(crashes) { return launch(inputs, outputs, stream, inputs[0].sizes[0] > 3 ? crash : scale); }
ENTRY(hangs) { return launch(inputs, outputs, stream, inputs[0].sizes[0] > 3 ? spin : scale); }
