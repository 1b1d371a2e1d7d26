"""Every error of the driver's carries the call, its name, what it means, and what to do. On a fake GPU."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.device.fakes import GIB, FakeGpu, FakeMachine

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
"""In a process of its own: what is once loaded as the driver stays there."""


def said(fake: FakeMachine, does: str) -> str:
    """What a process says that does something on a device."""
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
    """A hint where one is known."""
    fake.has(FakeGpu(bytes=GIB))
    assert expected == said(fake, does)


def test_a_driver_that_does_not_start_is_told_with_its_reason(fake: FakeMachine) -> None:
    """And what mends it."""
    fake.driver("580.65.06", 13000, init=803)
    expected = "the NVIDIA driver does not start: cuInit says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): "
    found = said(fake, "")
    assert expected in found
    assert "reboot after an update" in found
