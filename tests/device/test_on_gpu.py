"""Facts of a real GPU: its identity, its users, free memory, and whether the toolkit fits."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.calls.cuda.driver import Device, read_gpu_facts
from loop.gate.environment import require_fit
from loop.machine.machine import Gpu, detect_gpus, machine, nvcc_release
from loop.machine.nvml import Sensors, open_sensors
from loop.workers.bench import Bench
from tests.conftest import ROOT
from tests.device.make_target import make_target
from tests.projects import loop

pytestmark = pytest.mark.cuda
HOLD = """
import sys
from loop.calls.cuda.driver import Device, DeviceMemory
device = Device()
held = DeviceMemory(device, 4 * 2**30)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def first() -> Gpu:
    """The GPU that everything runs on."""
    return detect_gpus().usable[0]


@pytest.fixture(scope="module")
def sensors(first: Gpu) -> Sensors:
    opened = open_sensors(first.uuid)
    assert opened is not None, f"NVML does not know {first.uuid}"
    return opened


def test_what_is_known_without_a_context_is_what_the_device_says(first: Gpu) -> None:
    """Name, UUID, capability; memory is more than is free."""
    device = Device()
    facts = read_gpu_facts(device.driver, 0)  # CUDA's handle of a device is its number.
    assert (facts["name"], facts["uuid"], machine().capability) == (first.name, first.uuid, first.capability)
    assert device.free_bytes < first.memory_bytes
    assert detect_gpus().cuda is not None
    assert first.name in detect_gpus().smi_names


@pytest.mark.nvcc
def test_the_toolkit_here_fits(first: Gpu, tmp_path: Path) -> None:
    """nvcc's release is read, and its code runs under this driver."""
    bench = Bench(make_target(tmp_path), tmp_path, tmp_path / "builds", include_folder(), "cuda", 1)
    release = nvcc_release("nvcc")
    print(release, detect_gpus().cuda, detect_gpus().driver)
    assert re.fullmatch(r"\d+\.\d+", str(release))
    require_fit(bench.compiled_variants(["right"])["right"])


@contextmanager
def another_process() -> Iterator[None]:
    """While it lasts a process that is not loop's holds 4 GiB of the GPU."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        assert "held" == process.stdout.readline().strip()
        yield
        process.communicate("")


@pytest.mark.nvcc
def test_a_measurement_says_who_disturbs_it_and_what_has_no_room(first: Gpu, tmp_path: Path) -> None:
    """By the command line: exit 0, a warning, one workload left out by name, and the others measured."""
    make_target(tmp_path / "target")
    where = ("--target", str(tmp_path / "target"))
    loop("trust", where[1])
    sets = ("--workloads", "timed", "--workloads", "N=1000000 M=1000000")
    with another_process():
        done = loop("kernels", "measure", "right", *where, *sets, "--device", "cuda", "--json")
    assert 0 == done.returncode, done.stdout + done.stderr
    steps = {step["step"]: step for step in json.loads(done.stdout)["steps"]}
    for name in ("verify", "measure"):
        print(steps[name]["message"])
        assert "left out: N1000000 M1000000 float32: inputs and outputs of" in steps[name]["message"]
    (warned,) = steps["measure"]["output"]["warnings"]
    assert f"{first.name} is not ours alone: " in warned
    assert f"warning: {warned}" in steps["measure"]["message"]
    assert 8 == len(steps["measure"]["output"]["measurements"])
