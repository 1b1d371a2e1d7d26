"""The CUDA layer without a GPU: refusals, missing sensors, and a driver's errors."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loop.calls.call import LoopTensor
from loop.calls.cuda import driver as cuda
from loop.calls.cuda import driver as cuda_functions
from loop.calls.cuda import stage as cuda_graph
from loop.calls.cuda.driver import FAULTS, HINTS, NoDevice
from loop.machine.nvml import open_sensors
from tests.conftest import ROOT
from tests.device.compiling import compile_with_nvcc
from tests.device.fakes import GIB, FakeGpu, FakeMachine


def test_a_machine_without_a_driver_is_told_so_and_has_no_sensors() -> None:
    """The missing library is named; it is no verdict on a variant, and the parent continues."""
    with pytest.raises(NoDevice, match=r"no NVIDIA driver here: libnowhere\.so\.1 cannot be loaded"):
        cuda.load_driver("libnowhere.so.1")
    assert open_sensors("GPU-0", "libnowhere.so.1") is None


CONSTANTS = {
    "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": cuda.MULTIPROCESSORS,
    "CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": cuda.L2_BYTES,
    "CU_DEVICE_ATTRIBUTE_CLOCK_RATE": cuda.CLOCK_KHZ,
    "CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE": cuda.MEMORY_CLOCK_KHZ,
    "CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH": cuda.BUS_BITS,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": cuda.MAJOR,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": cuda.MINOR,
    "CU_STREAM_NON_BLOCKING": cuda.NON_BLOCKING,
    "CUDA_ERROR_STUB_LIBRARY": cuda.STUB_LIBRARY,
    "CUDA_ERROR_NO_DEVICE": cuda.NO_DEVICE_FOUND,
    "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": cuda_graph.THREAD_LOCAL,
    "CU_MEMHOSTALLOC_PORTABLE": cuda_graph.PORTABLE,
    "CU_MEMHOSTALLOC_DEVICEMAP": cuda_graph.MAPPED,
    "CU_STREAM_WAIT_VALUE_EQ": cuda_graph.WAIT_EQUAL,
    "sizeof(LoopTensor)": ctypes.sizeof(LoopTensor),
    "offsetof(LoopTensor, sizes)": LoopTensor.sizes.offset,
    "offsetof(LoopTensor, strides)": LoopTensor.strides.offset,
}
CHECK = """
#include <cuda.h>
#include <stddef.h>
#include <initializer_list>
#include <type_traits>
#include "loop_kernel.h"

template <class R, class... A>
constexpr bool takes(R (*)(A...), std::initializer_list<int> wanted) {
  const int found[] = {0, (std::is_pointer<A>::value ? 0 : int(sizeof(A)))...};
  if (sizeof(R) != sizeof(int) || wanted.size() != sizeof...(A)) return false;
  const int *next = found;
  for (int size : wanted) if (size != *++next) return false;
  return true;
}
"""


def size_of(argument: type) -> int:
    """Bytes of an argument; 0 for any pointer."""
    pointer = argument in (ctypes.c_void_p, ctypes.c_char_p) or hasattr(argument, "contents")
    return 0 if pointer else ctypes.sizeof(argument)


def assertion(name: str, arguments: tuple[type, ...]) -> str:
    """C++ that holds when a function of cuda.h takes these arguments."""
    sizes = ", ".join(str(size_of(argument)) for argument in arguments)
    line = f'static_assert(takes(&{name}, {{{sizes}}}), "{name}");'
    return f"#if CUDA_VERSION >= 12080\n{line}\n#endif" if name in cuda_functions.OLDER else line


@pytest.mark.nvcc
def test_functions_and_constants_are_those_of_the_header(tmp_path: Path) -> None:
    """Every name that is bound, the size of each argument and every number, as cuda.h has them."""
    lines = [assertion(name, arguments) for name, arguments in cuda_functions.SIGNATURES.items()]
    lines += [f'static_assert({name} == {value}, "{name}");' for name, value in CONSTANTS.items()]
    (tmp_path / "check.cpp").write_text(CHECK + "\n".join(lines) + "\n")
    compile_with_nvcc("-c", str(tmp_path / "check.cpp"), "-o", str(tmp_path / "check.o"))


ERROR = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*CUDA_ERROR_\w+\s*=\s*(\d+)", re.DOTALL)


@pytest.mark.nvcc
def test_errors_and_faults_are_those_of_the_header(tmp_path: Path) -> None:
    """Every error with a hint exists; errors that end a process by cuda.h are faults, and few others are."""
    (tmp_path / "check.cpp").write_text("#include <cuda.h>\n")
    compile_with_nvcc("-M", str(tmp_path / "check.cpp"), "-o", str(tmp_path / "check.d"))
    header = next(word for word in (tmp_path / "check.d").read_text().split() if word.endswith("/cuda.h"))
    words = {int(number): " ".join(text.split()) for text, number in ERROR.findall(Path(header).read_text())}
    assert HINTS.keys() <= words.keys() | {999}
    ending = {number for number, text in words.items() if "terminated and relaunched" in text.replace(" * ", " ")}
    assert {700, 702, 714, 715, 716, 717, 718, 719} <= ending <= FAULTS
    assert {214, 220, 709, 710, 999} >= FAULTS - ending


OPEN = """
import sys
from loop.calls.cuda.driver import Device, DeviceMemory
from loop.calls.call import Refused
try:
    device = Device()
    exec(sys.argv[1])
except Refused as error:
    print(type(error).__name__, error)
"""
"""Runs in a process of its own, because a loaded driver library stays loaded."""


def output_of(fake: FakeMachine, does: str) -> str:
    """Output of a process that runs code on a device."""
    with fake.here(PYTHONPATH=str(ROOT)):
        done = subprocess.run(
            [sys.executable, "-c", OPEN, does], capture_output=True, text=True, check=False, timeout=60
        )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("does", "expected"),
    [
        (
            "DeviceMemory(device, 2 * 2**30)",
            "Refused cannot have 2147483648 bytes of device memory, 1073741824 are free: cuMemAlloc_v2: "
            "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory; end what else uses the GPU (nvidia-smi shows it), "
            "or take smaller workloads",
        ),
        (
            "stream = device.copy_stream\n"
            "device.driver.call('cuStreamBeginCapture_v2', stream.handle, 1)\n"
            "stream.synchronise()",
            "Refused cuStreamSynchronize: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900): operation not permitted "
            "when stream is capturing; while a graph is captured a call may not wait for the GPU",
        ),
    ],
)
def test_an_error_says_where_what_and_what_to_do(fake: FakeMachine, does: str, expected: str) -> None:
    """A known error has a hint."""
    fake.has(FakeGpu(bytes=GIB))
    assert expected == output_of(fake, does)


def test_a_driver_that_does_not_start_is_told_with_its_reason(fake: FakeMachine) -> None:
    """The message has the reason and the remedy."""
    fake.driver("580.65.06", 13000, init=803)
    expected = "the NVIDIA driver does not start: cuInit says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): "
    message = output_of(fake, "")
    assert expected in message
    assert "reboot after an update" in message
