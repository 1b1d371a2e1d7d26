"""A tiny CUDA project: real kernels for nvcc; compiled by g++, its host code records its launches."""

from pathlib import Path
from typing import Any

from loop.model.target import Target
from tests.targets import write_target

SOURCE = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "loop_kernel.h"
#include "rows.h"

LOOP_EXPORT const char *loop_error(int error) { return error == 3 ? "no such type" : "launch failed"; }

template <typename T, int N> static int launch(const LoopTensor *x, LoopTensor *y, int shared, void *stream) {
  const unsigned count = (unsigned)(x->sizes[0] * x->sizes[1]);
  if (count == 0) return 0;
  const T *from = (const T *)x->data;
  LAUNCH((tiny::rows<T, N>), dim3((count + N - 1) / N), dim3(N), shared, stream, from, (T *)y->data, count);
  if (x->sizes[0] > 4) LAUNCH(tail, dim3(1), dim3(32), 0, stream, (float *)y->data);
  return 0;
}

#define ENTRY(name) \
  LOOP_EXPORT int name(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *stream)
ENTRY(plain) {
  if (inputs->dtype == LOOP_FLOAT64) return launch<double, 64>(inputs, outputs, 0, stream);
  return launch<float, 128>(inputs, outputs, SHARED, stream);
}
ENTRY(floats) {
  return inputs->dtype == LOOP_FLOAT64 ? 3 : launch<float, 128>(inputs, outputs, 0, stream);
}
ENTRY(reads) { return launch<float, 128>(inputs, outputs, ((const float *)inputs->data)[0] > 0, stream); }
ENTRY(silent) { (void)inputs, (void)outputs, (void)stream; return 0; }
ENTRY(garbles) {
  if (FILE *file = fopen(getenv("LOOP_EMULATOR_LAUNCHES"), "a")) fputs("{}\n", file), fclose(file);
  (void)inputs, (void)outputs, (void)stream;
  return 0;
}
"""
KERNELS = r"""
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
  (kernel)<<<grid, block, shared, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#else
#include <dlfcn.h>
#define __global__ __attribute__((noinline))
#define __shared__
#define __launch_bounds__(threads)
#define INDEX 0
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static void tell(const void *kernel, dim3 grid, dim3 block, unsigned shared) {
  Dl_info found;
  const char *path = getenv("LOOP_EMULATOR_LAUNCHES");
  FILE *file = getenv("LOOP_EMULATOR_DRY") && path ? fopen(path, "a") : nullptr;
  if (!file || !dladdr(kernel, &found)) exit(7);
  fprintf(file, "{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u, ",
          found.dli_sname, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
  fprintf(file, "\"shared_static\": 0, \"conflicts\": 3}\n");
  fclose(file);
}
#define LAUNCH(kernel, grid, block, shared, stream, ...) tell((const void *)&(kernel), grid, block, shared)
#endif
#ifndef SHARED
#define SHARED 2048
#endif

namespace tiny {
template <typename T, int N> __global__ void rows(const T *x, T *y, unsigned count) {
  static_assert(N % 32 == 0, "rows are cut into whole warps");
  __shared__ T own[N];
  const unsigned i = INDEX;
  own[i % N] = i < count ? x[i] : T(0);
  if (i < count) y[i] = own[i % N] + x[i];
}
}  // namespace tiny

__global__ void tail(float *y) { y[INDEX] *= 1.0f; }

#ifdef SPILL
extern "C" __global__ void __launch_bounds__(1024) crowded(float *x) {
  float all[SPILL];
#pragma unroll
  for (int i = 0; i < SPILL; ++i) all[i] = x[i * 1024 + INDEX];
#pragma unroll
  for (int i = 0; i < SPILL; ++i)
#pragma unroll
    for (int j = 0; j < SPILL; j += 7) all[i] = all[i] * all[j] + all[(i + j) % SPILL];
#pragma unroll
  for (int i = 0; i < SPILL; ++i) x[i * 1024 + INDEX] = all[i];
}
#endif
#ifdef INSTANCES
template __global__ void tiny::rows<float, 96>(const float *, float *, unsigned);
#endif
"""
BAD = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "rows.h"
void use(const float *x, float *y) {
  LAUNCH((tiny::rows<float, ROWS>), dim3(1), dim3(ROWS), 0, nullptr, x, y, 1u);
}
"""
L4 = {
    "name": "NVIDIA L4",
    "sms": 58,
    "shared_per_sm": 102400,
    "shared_per_block": 101376,
    "shared_static": 49152,
    "registers_per_sm": 65536,
    "threads_per_sm": 1536,
    "blocks_per_sm": 24,
    "l2_bytes": 50331648,
    "bytes_per_s": 300e9,
    "flops_per_s": {"float32": 30.3e12, "float64": 0.5e12},
}
WORKLOADS: dict[str, Any] = {
    "some": [{"N": [2, 5], "M": 300}, {"N": 0, "M": 3}],
    "large": [{"N": 4096, "M": 4096, "dtype": "float32"}],
}


def nvcc(*flags: str, compiler: str = "nvcc") -> dict[str, Any]:
    """A recipe with the assembler's report."""
    return {"compiler": compiler, "flags": ["-std=c++17", "-O3", "-arch={arch}", "-Xptxas", "-v", *flags]}


def emulator(*flags: str, compiler: str = "g++") -> dict[str, Any]:
    """The recipe for a build that records its launches."""
    return {"compiler": compiler, "flags": ["-std=c++17", "-O0", "-x", "c++", *flags]}


def cuda(entry: str = "plain", *flags: str, **fields: Any) -> dict[str, Any]:
    """A CUDA variant of the tiny project that can be emulated."""
    base: dict[str, Any] = {"kind": "c_abi", "device": "cuda", "sources": ["rows.cu"], "entry": entry}
    recipes = {"build": nvcc(*flags), "emulation": emulator(*flags)}
    return {**base, **recipes, "dtypes": ["float32", "float64"], **fields}


def write_cuda_target(folder: Path, variants: dict[str, Any], **fields: Any) -> Target:
    """Write the project; read its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"rows.cu": SOURCE, "rows.h": KERNELS, "bad.cu": BAD}.items():
        (folder / name).write_text(text)
    manifest = {
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": WORKLOADS,
        "devices": {"sm_89": L4},
        "flops": "N * M",
        "bytes": "2 * itemsize * N * M",
    }
    return write_target(folder, variants, **{**manifest, **fields})
