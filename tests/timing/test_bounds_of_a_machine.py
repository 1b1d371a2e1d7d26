"""Claims that this machine cannot fulfil are told, and an honest kernel near its roof is never accused."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.model.dtypes import Dtype
from loop.model.measurement import Measurement
from loop.timing import bounds
from loop.timing.bounds import impossible
from loop.timing.roof import MachineRoof, measure_roof
from loop.workers.bench import Bench
from tests.makers import make_measurement, make_workload
from tests.targets import compiled, open_bench, write_target

BUSY = "while True: pass"
COPY = r"""
#include <string.h>
extern "C" void copy(float *to, const float *from, long bytes) { memcpy(to, from, bytes); }
extern "C" void add(float *to, const float *from, long bytes) {
  for (long i = 0; i < bytes / 4; ++i) to[i] = from[i] + 1.0f;
}
"""
SIZES = {"L1": 8 << 10, "L2": 256 << 10, "memory": 32 << 20}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for a small target on one thread, whose manifest counts bytes: x is read, the result written."""
    folder = tmp_path_factory.mktemp("roofs")
    target = write_target(folder, {"right": compiled("right")}, bytes="itemsize * 2 * N * M")
    with open_bench(folder, target, build_cache) as made:
        yield made


def claim(size: int, seconds: float, dtype: Dtype = "float32", **fields: float) -> Measurement:
    """A call on an input and an output of so many bytes each."""
    workload = make_workload("w", sizes={"N": size // 4096, "M": 1024}, dtype=dtype)
    return make_measurement(candidate_us=seconds * 1e6, **fields).model_copy(update={"workload": workload})


@pytest.mark.slow
def test_a_call_that_takes_less_than_an_empty_one_is_impossible(bench: Bench) -> None:
    """Measured again before it is said; a program's own figure has to allow for the call of a function alone."""
    short = claim(0, 1e-9)
    assert finish(impossible(bench, short, "c_abi")).startswith("faster than an empty call: 0.001 us")
    assert finish(impossible(bench, short, "python")).startswith("faster than an empty call: 0.001 us")
    assert finish(impossible(bench, short, "command")).startswith("faster than an empty call: 0.001 us")
    assert "" == finish(impossible(bench, claim(0, 3e-9), "command"))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.slow
def test_bytes_that_no_cache_and_no_memory_of_this_machine_move_are_impossible(name: str, bench: Bench) -> None:
    """From the first cache, the second, and beyond: a hundred times what is written here by the clock."""
    size = SIZES[name]
    said = finish(impossible(bench, claim(size, 2 * size / 2e13), "command"))
    assert said.startswith("faster than memory: ")
    assert "measured here on 1 thread" in said


def test_more_operations_than_the_vector_units_do_are_impossible(bench: Bench) -> None:
    """Below what the fastest clock of any processor would allow, and beyond what this one was seen to do."""
    threads = measure_roof(bench.cache, "float32", 1, 1 << 14)
    reached = finish(threads).most_flops_per_s
    assert finish(impossible(bench, claim(4096, 1e-3, flops_per_s=1.6 * reached), "command")).startswith("faster")
    assert "" == finish(impossible(bench, claim(4096, 1e-3, flops_per_s=1.05 * reached), "command"))


def test_a_roof_that_was_measured_badly_accuses_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A low figure is measured again; the highest of several counts."""
    low, high = MachineRoof(1e9, 1e9, 1e9, 1e9), MachineRoof(1e12, 1e12, 1e12, 1e12)
    figures = iter([low, low, low, high])

    def measured(*_: object) -> Iterator[None]:
        return next(figures)
        yield

    monkeypatch.setattr(bounds, "measure_roof", measured)
    monkeypatch.setattr(bounds, "REACHED", {})
    assert "" == finish(impossible(bench, claim(1 << 20, 2e-5), "command"))
    assert [] == list(figures)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Two honest kernels that only move data."""
    folder = tmp_path_factory.mktemp("copy")
    (folder / "copy.cpp").write_text(COPY)
    command = ["g++", "-O3", "-march=native", "-shared", "-fPIC", "copy.cpp", "-o", "copy.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "copy.so"))


def quickest(function: object, size: int, calls: int) -> float:
    """Seconds of the shortest call of some: more than any median says."""
    to, source = (ctypes.create_string_buffer(size) for _ in range(2))
    ctypes.memset(source, 1, size)
    best = 1.0
    for _ in range(calls):
        begin = time.perf_counter()
        function(to, source, ctypes.c_long(size))  # type: ignore[operator]
        best = min(best, time.perf_counter() - begin)
    return best


def accused(bench: Bench, kernels: ctypes.CDLL, times: int, busy: int = 0) -> list[str]:
    """What is said of honest kernels in every size, so many times in all, while so many others want the cores."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        cases = [(size, kernel) for size in SIZES.values() for kernel in (kernels.copy, kernels.add)]
        said = []
        for number in range(times):
            size, kernel = cases[number % len(cases)]
            seconds = quickest(kernel, size, 200 if size < 1 << 20 else 3)
            said.append(finish(impossible(bench, claim(size, seconds), "command")))
    finally:
        for one in others:
            one.kill()
            one.wait()
    return [text for text in said if text]


def test_an_honest_kernel_near_its_roof_is_not_accused(bench: Bench, kernels: ctypes.CDLL) -> None:
    """By its quickest call."""
    assert [] == accused(bench, kernels, 6)


@pytest.mark.soak
def test_an_honest_kernel_near_its_roof_is_never_accused(bench: Bench, kernels: ctypes.CDLL) -> None:
    """Two hundred times, while four programs keep the cores busy."""
    assert [] == accused(bench, kernels, 200, busy=4)
