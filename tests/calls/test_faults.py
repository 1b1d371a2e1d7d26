"""An access outside of a tensor whose pages are closed ends the process, and the tensor is named."""

import json
import platform
import signal
import subprocess
import sys

import pytest

from loop.workers.program import parse_fault
from tests.conftest import ROOT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="faults are told on Linux")
PROGRAM = """
import ctypes, json, sys
from loop.calls.invocation import name_faults
from loop.calls.memory import Buffer
size, shift, at_end, place, write = json.loads(sys.argv[1])
buffer = Buffer(size, shift)
buffer.name = "its input x"
buffer.protect_zones(at_end=at_end)
buffer.fill(bytes(size))
with name_faults(lambda: [buffer]):
    address = 8 if place is None else buffer.address + place
    ctypes.memset(address, 1, 1) if write else ctypes.string_at(address, 1)
print("came back")
"""


def access(size: int, place: int | None, at: str = "end", shift: int = 0, do: str = "writes") -> tuple[int, str]:
    """Exit status and message of an access at a byte offset from the tensor; None: outside of any tensor."""
    words = json.dumps([size, shift, at == "end", place, do == "writes"])
    command = [sys.executable, "-c", PROGRAM, words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, parse_fault(done.stderr)[1] or done.stdout.strip()


@LINUX
@pytest.mark.parametrize(
    ("size", "place", "at", "do", "message"),
    [
        (128, 128, "end", "writes", "writes outside its input x: 0 bytes after its end"),
        (128, 131, "end", "reads", "reads outside its input x: 3 bytes after its end"),
        (100, 128, "end", "writes", "writes outside its input x: 28 bytes after its end"),
        (100, -1, "begin", "writes", "writes outside its input x: 1 bytes before its beginning"),
        (100, 200000, "end", "writes", "writes outside its input x: 199900 bytes after its end"),
    ],
)
def test_an_access_beside_a_tensor_is_told(size: int, place: int, at: str, do: str, message: str) -> None:
    """How far from it, and which way; also far beyond its zone."""
    code, words = access(size, place, at=at, do=do)
    assert -signal.SIGSEGV == code
    assert message == (words.replace("reads or writes", do) if platform.machine() != "x86_64" else words)


@LINUX
def test_a_misaligned_tensor_ends_where_its_page_does() -> None:
    """A misaligned tensor ends at its page's end, so an access behind it faults, too."""
    assert -signal.SIGSEGV == access(100, 100, shift=4)[0]
    assert (0, "came back") == access(100, 99, shift=4)


@LINUX
def test_a_fault_that_is_nobodys_neighbour_is_what_it_was() -> None:
    """The signal ends the process."""
    assert (-signal.SIGSEGV, "") == access(128, None)
