"""Kernels launched from several threads of a program; the CUDA calls are stood in for, no GPU is needed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from loop.base.places import include_folder

THREADS = """
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <cuda_runtime.h>

static std::atomic<int> asked{0}, given{0};
static void wait_for(const std::atomic<int> &value, int wanted) {
  for (int n = 0; n < 500 && value < wanted; n++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
template <typename Kernel>
cudaError_t sets(Kernel, cudaFuncAttribute, int bytes) {
  asked++;
  if (bytes == 60 << 10) wait_for(given, 100 << 10);  // As long as the other thread may take.
  given = bytes;
  return cudaSuccess;
}
static cudaError_t gets(int *device) { return *device = 0, cudaSuccess; }
#define cudaFuncSetAttribute sets
#define cudaGetDevice gets
#include "loop_device.cuh"

__global__ void kernel() {}

int main() {
  std::thread less([] { simt::allow_shared<kernel>(60 << 10); });
  wait_for(asked, 1);
  std::thread more([] { simt::allow_shared<kernel>(100 << 10); });
  less.join(), more.join();
  std::printf("%d", given.load() >> 10);
}
"""


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
def test_no_thread_takes_back_the_shared_memory_that_another_asked_for(tmp_path: Path) -> None:
    """A kernel that two threads launch with different sizes keeps the larger one, whoever comes last."""
    source, program = tmp_path / "threads.cu", tmp_path / "threads"
    source.write_text(THREADS)
    subprocess.run(
        ["nvcc", "-std=c++17", "-arch=sm_89", f"-I{include_folder()}", str(source), "-o", str(program)],
        check=True,
        timeout=120,
    )
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=30)
    assert "100" == done.stdout
