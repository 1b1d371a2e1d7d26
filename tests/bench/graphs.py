"""Calls in CUDA graphs, timed in turns; SDPA with one backend; kernels that do nothing, or only read."""

import contextlib
import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Run = Callable[[], object]
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}
REPLAY_US = 400.0  # Target duration of one replay of a graph.


def held_to(name: str) -> contextlib.AbstractContextManager[object]:
    """A context in which SDPA uses the backend of that name; without effect for other names."""
    return sdpa_kernel(BACKENDS[name]) if name in BACKENDS else contextlib.nullcontext()


class Graph:
    """A CUDA graph of `calls` calls, which repeat `runs` in order."""

    def __init__(self, runs: Sequence[Run], calls: int) -> None:
        self.calls = calls
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            runs[0]()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for number in range(calls):
                runs[number % len(runs)]()

    def time_us(self) -> float:
        """Microseconds of a call, from one replay."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / self.calls

    def best_us(self) -> float:
        """The least of three replays, because the first one may be slower."""
        return min(self.time_us() for _ in range(3))


def times(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median microseconds of each run, timed in turns."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in runs if number % 2 else reversed(runs):
            samples[name].append(runs[name]())
    return {name: median(values) for name, values in samples.items()}


PLAIN = """
#include <cuda_runtime.h>
__global__ void empty() {}
extern "C" int launch_empty(cudaStream_t stream) { empty<<<8, 128, 0, stream>>>(); return cudaGetLastError(); }

template <int kAhead>
__global__ void read(const uint4 *k, const uint4 *v, size_t count, unsigned *sink) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  unsigned seen = 0;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += kAhead * step) {
    uint4 a[kAhead], b[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; n++) a[n] = i + n * step < count ? k[i + n * step] : uint4{};
#pragma unroll
    for (int n = 0; n < kAhead; n++) b[n] = i + n * step < count ? v[i + n * step] : uint4{};
#pragma unroll
    for (int n = 0; n < kAhead; n++)
      seen ^= a[n].x ^ a[n].y ^ a[n].z ^ a[n].w ^ b[n].x ^ b[n].y ^ b[n].z ^ b[n].w;
  }
  if (seen == 0x12345678u) *sink = seen;
}
extern "C" int launch_read(const void *k, const void *v, size_t bytes, int blocks, int threads, int ahead,
                           void *sink, cudaStream_t stream) {
  const auto kernel = ahead == 1 ? read<1> : ahead == 2 ? read<2> : ahead == 4 ? read<4> : read<8>;
  const size_t count = bytes / 16, most = (count + threads - 1) / threads;
  kernel<<<size_t(blocks) < most ? blocks : most, threads, 0, stream>>>(
      static_cast<const uint4 *>(k), static_cast<const uint4 *>(v), count, static_cast<unsigned *>(sink));
  return cudaGetLastError();
}
"""
READS = ((8, 256, 1), (8, 256, 2), (8, 256, 4), (4, 256, 8), (4, 512, 2), (4, 512, 4), (2, 512, 8))
READS += ((2, 1024, 2), (2, 1024, 4), (1, 1024, 8), (16, 128, 4), (8, 128, 8))
"""Launches of `read`: blocks a multiprocessor, threads, loads of 16 bytes that a thread has on their way."""


class Plain:
    """Kernels without a purpose of their own, to compare with."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder) / "plain.cu", Path(folder) / "plain.so"
            source.write_text(PLAIN)
            command = ["nvcc", "-arch=native", "-shared", "-Xcompiler", "-fPIC", str(source), "-o", str(library)]
            subprocess.run(command, check=True, capture_output=True)
            loaded = ctypes.CDLL(str(library))
        self._empty, self._read = loaded.launch_empty, loaded.launch_read
        self._empty.argtypes = [ctypes.c_void_p]
        self._read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3]
        self._read.argtypes += [ctypes.c_void_p, ctypes.c_void_p]
        self._sink = torch.zeros(4, device="cuda")

    def empty(self) -> None:
        """Launch a kernel that does nothing."""
        self._empty(torch.cuda.current_stream().cuda_stream)

    def read(self, k: Tensor, v: Tensor, shape: tuple[int, int, int]) -> Run:
        """A call of the kernel that only reads `k` and `v` once; `shape` is an entry of READS."""
        grid = torch.cuda.get_device_properties(k.device).multi_processor_count * shape[0]
        data = (k.data_ptr(), v.data_ptr(), k.numel() * k.element_size(), grid, *shape[1:], self._sink.data_ptr())
        return lambda: self._read(*data, torch.cuda.current_stream().cuda_stream)
