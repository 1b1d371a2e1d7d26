"""The bridge without PyTorch and without a GPU: devices, streams, structures, ownership."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.pytorch import c_dispatch
from tests.conftest import ROOT

SOURCE = ROOT / "tests" / "pytorch" / "bridge.cpp"
FLAGS = [
    "-std=c++17",
    "-g1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover",
]
SAID = """
registered: 0
right: launch on device 1, stream 0x101, attributes 1 1 0.5, output 2 x 3
  output 3 on device 1
from the processor: loop_fake::add: x: expected a tensor on cuda, got one on cpu
two devices: loop_fake::add: y: expected a tensor on cuda:1, as x is, got one on cuda:0
unknown device: loop_fake::add: y: expected a tensor on cuda, got one on another device
unknown type: loop_fake::add: y: expected float32, got another type
type beyond the table: loop_fake::add: y: expected float32, got another type
rank: loop_fake::add: y: expected 2 dimensions (N M), got 1
nine dimensions: loop_fake::add: x: expected 2 dimensions (N M), got 9
sizes: loop_fake::add: y: expected M = 3, as in x, got 4
choice: loop_fake::add: choice: expected 0 (no) or 1 (yes), got -1
declined: launch on device 1, stream 0x101, attributes 1 1 13, output 2 x 3
loop_fake::add: error 13:{space}
no memory: loop_fake::add: PyTorch could not allocate the output; the reason is on the standard error
lent: nothing, 0 tensors
no guard: loop_fake::add: PyTorch could not make a device the current one; the reason is on the standard error
gradient: loop_fake::add: y requires a gradient, and the operator has none: {remedy} y
gradient that nobody records: launch on device 1, stream 0x101, attributes 1 1 0.5, output 2 x 3
  output 3 on device 1
lent: 100 elements of type 7 on device -1, then 0 tensors
right: by the shortcut, known 1: launch on device 1, stream 0x101, attributes 1 1 0.5, output 2 x 3
  output 3 on device 1
no memory: by the shortcut, known 1: out of memory
slots: 64, kernels: 128
"""


def run_gxx(*arguments: str) -> str:
    """Compile; what the compiler says is the error."""
    command = ["g++", f"-I{include_folder()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stderr
    return done.stderr


def test_the_bridge_restores_the_device_and_leaks_nothing(tmp_path: Path) -> None:
    """The tensors' device is current during the launch only; no stream or device leaks."""
    program = tmp_path / "bridge"
    run_gxx(*FLAGS, str(SOURCE), "-o", str(program))
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    expected = SAID.format(space=" ", remedy="call it under torch.no_grad(), or detach")
    assert expected.strip() == done.stdout.strip()


@pytest.mark.parametrize(
    "structure",
    [
        c_dispatch.Functions,
        c_dispatch.Numbers,
        c_dispatch.TorchInput,
        c_dispatch.TorchAttribute,
        c_dispatch.TorchOperator,
    ],
)
def test_structures_are_those_of_the_bridge(structure: type[ctypes.Structure], tmp_path: Path) -> None:
    """Each field of shim.py has the offset that it has in loop_torch.cpp."""
    name = f"LoopTorch{structure.__name__.removeprefix('Torch')}"
    lines = ["#include <cstddef>", '#include "loop_torch.cpp"']
    lines += [f"static_assert(sizeof({name}) == {ctypes.sizeof(structure)});"]
    for field, *_ in structure._fields_:
        offset = getattr(structure, field).offset
        lines.append(f"static_assert(offsetof({name}, {field.rstrip('_')}) == {offset});")
    lines.append(f"static_assert(kMost == {c_dispatch.MOST_ARGUMENTS} && kTypes == {c_dispatch.TYPE_TABLE_SIZE});")
    (tmp_path / "fields.cpp").write_text("\n".join(lines))
    run_gxx("-std=c++17", "-fsyntax-only", str(tmp_path / "fields.cpp"))
