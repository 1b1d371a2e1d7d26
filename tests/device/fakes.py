"""A machine with fake GPUs: a driver, NVML, nvidia-smi and nvcc for tests, in one folder."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loop.base.places import include_folder
from loop.machine import machine
from loop.machine.nvml import Sensors, open_sensors
from loop.model.target import Target
from loop.workers.bench import Bench
from tests.conftest import ROOT
from tests.targets import compiled, importable, write_target

SOURCES = ROOT / "tests" / "device" / "fake"
GIB = 2**30
SMI = """#!/bin/sh
while IFS='|' read -r name rest; do echo "$name, {driver}"; done < {folder}/gpus.txt
"""
NVCC = """#!{python} -S
import os, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("nvcc: NVIDIA (R) Cuda compiler driver")
    print("Cuda compilation tools, release {release}, V{release}.88")
    sys.exit(0)
if words == ["--list-gpu-code"]:
    print(*(code for code in ("sm_80", "sm_89", "sm_90") if code not in "{unknown}"))
    sys.exit(0)
with open("{folder}/compiled.txt", "a") as file:
    print(*words, file=file)
for word in words:
    if word.startswith(("-arch=", "-gencode=")) and any(name in word for name in "{unknown}".split()):
        print(f"nvcc fatal   : Unsupported gpu architecture '{{word}}'", file=sys.stderr)
        sys.exit(1)
words = [word for word in words if word != "-Xcompiler" and not word.startswith(("-arch=", "-gencode="))]
os.execvp("g++", ["g++", "-x", "c++", *words])
"""


@dataclass(frozen=True)
class FakeGpu:
    """One GPU, as the fake driver shows it."""

    name: str = "NVIDIA H200"
    capability: str = "9.0"
    bytes: int = 140 * GIB
    taken: int = 0
    """Bytes that others hold."""

    def uuid(self, slot: int) -> str:
        """The UUID that nvidia-smi -L shows for a GPU in this slot."""
        digits = self._digits(slot)
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _digits(self, slot: int) -> str:
        return f"{slot:02x}" * 16

    def line(self, slot: int) -> str:
        """The GPU's line of gpus.txt."""
        major, minor = self.capability.split(".")
        return f"{self.name}|{self._digits(slot)}|{major}|{minor}|{self.bytes}|{self.taken}\n"


class FakeMachine:
    """Libraries and programs in a folder; their answers can be changed at any time."""

    def __init__(self, folder: Path, built: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for library in built.iterdir():
            shutil.copy(library, folder)
        self.has(FakeGpu())
        self.driver("580.65.06", 13000)

    def has(self, *gpus: FakeGpu) -> None:
        """Put these GPUs into slots in this order; no process uses them."""
        (self.folder / "gpus.txt").write_text("".join(gpu.line(slot) for slot, gpu in enumerate(gpus)))
        self.load(*("0" for _ in gpus))

    def load(self, *lines: str) -> None:
        """Set the users of each GPU: `97 4242:10737418240` is 97 % busy, process 4242 holds 10 GiB."""
        (self.folder / "load.txt").write_text("".join(f"{line}\n" for line in lines))

    def driver(self, version: str, cuda: int, init: int = 0) -> None:
        """Install a driver: its version, the newest CUDA release that it runs, and the result of `cuInit`."""
        (self.folder / "cuda.txt").write_text(f"{cuda} {init}\n")
        self._program("nvidia-smi", SMI.format(driver=version, folder=self.folder))

    def nvcc(self, release: str, unknown: str = "") -> None:
        """A compiler of that release, which does not know some GPUs (`sm_89 sm_90`)."""
        text = NVCC.format(python=sys.executable, release=release, folder=self.folder, unknown=unknown)
        self._program("nvcc", text)

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    @property
    def compiled(self) -> list[str]:
        """All compilations by the fake nvcc."""
        file = self.folder / "compiled.txt"
        return file.read_text().splitlines() if file.is_file() else []

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that put a process on this machine."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.folder)}

    def sensors(self, slot: int = 0) -> Sensors:
        """The sensors of a GPU, of this very folder."""
        opened = open_sensors(FakeGpu().uuid(slot), library=str(self.folder / "libnvidia-ml.so.1"))
        assert opened is not None
        return opened

    @contextmanager
    def here(self, **variables: str) -> Iterator[None]:
        """This process and its children are on this machine."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **variables}.items():
                patch.setenv(name, value)
            forget()
            try:
                yield
            finally:
                forget()


def forget() -> None:
    """Clear cached facts about the machine."""
    for function in (machine.detect_gpus, machine.machine):
        function.cache_clear()
    machine.start_driver_query.cache_clear()
    machine.VERSION_BY_PATH.clear()


@functools.cache
def libraries(folder: Path) -> Path:
    """The fake libraries, compiled once."""
    folder.mkdir()
    for source, library in (("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")):
        soname = f"-Wl,-soname,{library}" if source == "cuda" else ""
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(SOURCES / f"{source}.cpp")]
        subprocess.run([*command, *filter(None, [soname]), "-o", str(folder / library)], check=True)
    return folder


FLAGS = ["-std=c++17", "-O1", "-arch={arch}", "-ldl"]
WORKLOADS = {"some": [{"N": [2, 5], "M": 3}, {"N": 3, "M": 4}], "timed": [{"N": [16, 64], "M": 64}]}


def fake_target(folder: Path, *entries: str, **fields: Any) -> Target:
    """A project with variants of the fake kernels, one for the processor, and one in Python for either."""
    recipe = {"compiler": "nvcc", "flags": FLAGS}
    cuda_variants = {name: compiled(name, device="cuda", sources=["kernels.cu"], build=recipe) for name in entries}
    further = {"host": compiled("right"), "torch": importable("double", device="any", dtypes=["float32"])}
    base = {"dtypes": {"cpu": "float32", "cuda": "float32"}, "workloads": WORKLOADS}
    target = write_target(folder, {**cuda_variants, **further}, **{**base, **fields})
    shutil.copy(SOURCES / "kernels.cu", folder)
    return target


@contextmanager
def fake_bench(fake: FakeMachine, folder: Path, *entries: str, **fields: Any) -> Iterator[Bench]:
    """A bench on the first fake GPU, its sensors those of the fake machine."""
    target = fake_target(folder, *entries, **fields)
    with Bench(target, folder, folder / "builds", include_folder(), "cuda", 1) as bench:
        bench.sensors = fake.sensors()
        yield bench
