"""Facts about this machine that need no torch: processor, compilers, driver, GPUs.

nvidia-smi numbers all GPUs by slot and ignores CUDA_VISIBLE_DEVICES. A CUDA program numbers only
visible GPUs, fastest first. `loop` uses the first of these: a process of its own asks the driver.
"""

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import psutil

from loop.base.documents import content_hash
from loop.base.processes import child_environment, output_of, python_path
from loop.calls.cuda.driver import Lack
from loop.model.profile import DeviceFacts
from loop.model.record import Machine

QUERY_LIMIT_S = 60  # Time limit in seconds: a driver may have to initialise every GPU first.
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
GENERIC_GPU_WORD = re.compile(r"NVIDIA|TESLA|GEFORCE|GPU|SXM\d?|HBM\d\w?")
"""Words of a GPU name that do not identify the model. `PCIe`, `NVL`, `MIG`, `Ti`, `Laptop` do."""
MEMORY_SIZE_WORD = re.compile(r"\d+GI?B")
Release = tuple[int, int]  # A CUDA release, as in (12, 4).
OLDEST_DRIVER = {11: "R450", 12: "R525", 13: "R580"}
"""CUDA major release to the oldest driver branch that runs its machine code, for all minor
releases. PTX, which the driver compiles, needs a driver of the exact release
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1)."""
TOOLKIT_ARCHIVE = "https://developer.nvidia.com/cuda-toolkit-archive"
VERSION_LIMIT_S = 10
NVCC_RELEASE_TEXT = "Cuda compilation tools"
"""Start of the line in which `nvcc --version` names its release; its first line does not."""
VERSION_BY_PATH: dict[str, str] = {}  # Version lines of compilers that ran, by path.
LANES_BY_FLAG = {"avx512f": 16, "avx": 8, "sse2": 4, "asimd": 4}
"""Processor flag to float32 elements per vector, widest first."""
IDENTIFYING_LINES = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""Lines of /proc/cpuinfo that decide which instructions a compiler chooses."""
CONTROL_GROUP = Path("/sys/fs/cgroup")
RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")
"""Counters in a control group's memory.stat for memory that the kernel frees on demand."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str
    uuid: str  # UUID as `nvidia-smi -L` shows it.
    capability: str
    memory_bytes: int
    facts: DeviceFacts

    @property
    def architecture(self) -> str:
        """Compiler's name of the architecture: `sm_89`."""
        return f"sm_{self.capability.replace('.', '')}"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine, and which of them a CUDA program may use."""

    usable: tuple[Gpu, ...] = ()  # Usable GPUs in CUDA's order; everything runs on the first.
    cuda: tuple[int, int] | None = None
    """The newest CUDA release that the driver supports; None if the driver does not start."""
    driver: str | None = None
    smi_names: tuple[str, ...] = ()  # Names of all GPUs that nvidia-smi lists.
    unusable_reason: str = ""  # Why a CUDA program can use no GPU; empty if it can.
    missing_part: Lack = ""  # What is missing if no GPU is usable: the driver, or a device.

    @property
    def first(self) -> Gpu | None:
        """The GPU that everything runs on; None if there is none."""
        return self.usable[0] if self.usable else None

    @property
    def first_gpu_text(self) -> str:
        """Name of the first GPU, and how it was chosen among several; empty if there is none."""
        if self.first is None:
            return ""
        count = max(len(self.usable), len(self.smi_names))
        if count == 1:
            return self.first.name
        visible = os.environ.get(VISIBLE_VARIABLE)
        setting = "" if visible is None else f", {VISIBLE_VARIABLE}={visible}"
        choice = f"the first that CUDA shows of {count}{setting}: {self.first.uuid}"
        return f"{self.first.name} ({choice})"


@functools.cache
def detect_gpus() -> Gpus:
    """The GPUs of this machine, cached. Asks nvidia-smi and the driver, at most a minute each."""
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = (output_of(smi, limit_s=QUERY_LIMIT_S) or "").splitlines()
    smi_rows = [line.split(", ") for line in lines if line.count(", ") == 1]  # Name and driver.
    # A driver may hang or crash, so a process of its own asks it, maybe since before nvidia-smi.
    why = "the process that asks the NVIDIA driver died"
    answer: dict[str, Any] = {"cuda": None, "gpus": [], "why": why}
    try:
        with start_driver_query() as process:
            try:
                text, _ = process.communicate(timeout=QUERY_LIMIT_S)
            finally:
                process.kill()
        answer = json.loads(text.splitlines()[-1])  # Of `gpus_seen.query_driver`.
    except subprocess.TimeoutExpired:
        answer["why"] = f"the NVIDIA driver did not answer within {QUERY_LIMIT_S} s"
    except (OSError, ValueError, IndexError):
        pass
    usable, release = [], answer["cuda"]
    for gpu in answer["gpus"]:
        known_fields = {name: gpu[name] for name in DeviceFacts.model_fields if name in gpu}
        facts = DeviceFacts.model_validate(known_fields)
        capability = ".".join(map(str, gpu["capability"]))
        usable.append(Gpu(gpu["name"], gpu["uuid"], capability, gpu["memory_bytes"], facts))
    return Gpus(
        usable=tuple(usable),
        cuda=(release[0], release[1]) if release else None,
        driver=smi_rows[0][1].strip() if smi_rows else None,
        smi_names=tuple(row[0] for row in smi_rows),
        unusable_reason="" if usable else answer["why"] or "the driver shows no GPU",
        missing_part=answer.get("lack", ""),
    )


@functools.cache
def start_driver_query() -> "subprocess.Popen[str]":
    """The process that asks the driver, started once. `detect_gpus` reads its answer."""
    command = [sys.executable, "-P", "-m", "loop.machine.gpus_seen"]
    env = {**child_environment(), "PYTHONPATH": python_path()}
    return subprocess.Popen(command, env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, text=True)


def explain_no_gpu(gpus: Gpus) -> tuple[str, str]:
    """Why nothing can run on a GPU here, and a hint. Call it only if `gpus.usable` is empty."""
    names = ", ".join(gpus.smi_names)
    visible = os.environ.get(VISIBLE_VARIABLE)
    if names and visible is not None and gpus.missing_part == "device":
        message = f"no GPU: {VISIBLE_VARIABLE}={visible!r} hides what is there ({names})"
        return message, f"unset {VISIBLE_VARIABLE}, or set it to 0"
    hint = "see what `nvidia-smi` says"
    if gpus.missing_part == "driver":
        hint = "install the NVIDIA driver"
        if names:
            hint = "libcuda.so.1 is missing: in a container, set NVIDIA_DRIVER_CAPABILITIES=all"
    there = f" that a program can use: {names} is there, but" if names else ":"
    return f"no GPU{there} {gpus.unusable_reason}", hint


def is_same_gpu_model(name: str, driver_name: str) -> bool:
    """Whether two names mean the same GPU model: `H100` and `NVIDIA H100 80GB HBM3`, not `H100
    PCIe`. Memory sizes are compared only if both names contain one."""
    sizes, models = [], []
    for text in (name, driver_name):
        words = set(re.split(r"[\s-]+", text.upper().strip()))
        sizes.append({word for word in words if MEMORY_SIZE_WORD.fullmatch(word)})
        models.append({word for word in words - sizes[-1] if not GENERIC_GPU_WORD.fullmatch(word)})
    return models[0] == models[1] and (sizes[0] == sizes[1] or not all(sizes))


def facts_of_present_gpu(
    datasheets: Mapping[str, DeviceFacts], capability: str, name: str, reported: DeviceFacts | None
) -> DeviceFacts | None:
    """Facts of this machine's GPU: the manifest's if name and number of SMs agree with the
    driver's, else the driver's. `datasheets`: the manifest's by architecture (`sm_89`).
    `capability`: `8.9`. `name`, `reported`: the driver's name and facts."""
    datasheet = datasheets.get(f"sm_{capability.replace('.', '')}")
    if datasheet is None or not is_same_gpu_model(datasheet.name, name):
        return reported
    is_other_size = reported is not None and reported.sms != datasheet.sms
    return reported if is_other_size else datasheet


def explain_old_driver(
    subject: str, toolkit: str, newest_cuda: Release | None, driver: str | None
) -> tuple[str, str]:
    """Why this driver cannot run code from this toolkit (empty if it can, or if that is unknown),
    and the remedy. `subject`: what was built. `newest_cuda`: that the driver supports."""
    major = int(toolkit.partition(".")[0])
    if newest_cuda is None or major <= newest_cuda[0]:
        return "", ""
    branch = OLDEST_DRIVER.get(major)
    needed = f"driver {branch} or newer" if branch else "a newer driver"
    newest = f"CUDA {newest_cuda[0]}.{newest_cuda[1]}"
    present = f"{driver or 'an older one'}, which runs code up to {newest}"
    older = f"a CUDA {newest_cuda[0]} toolkit: name its nvcc in target.yaml or put it first on PATH"
    conflict = f"{subject} {toolkit} needs {needed}, this machine has {present}"
    return conflict, f"install {needed}, or use {older}"


def requests_code_for(flags: Sequence[str], architecture: str) -> bool:
    """True if compiler flags ask for code for this architecture, also as `sm_90a` or `native`."""
    request = rf"\b{architecture}[af]?\b|-(?:arch|-gpu-architecture)[= ]native\b"
    return bool(re.search(request, " ".join(flags)))


@functools.cache
def machine() -> Machine:
    """Facts about this machine, which every result carries. Read once per process."""
    detected = detect_gpus()
    models = [value for name, value in processor_facts() if name == "model name"]
    return Machine(
        name=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        processor=models[0] if models else platform.processor() or platform.machine(),
        cores=cores(),
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        torch=installed_version("torch"),
        compiler=compiler_version("g++"),
        nvcc=nvcc_release("nvcc"),
        gpus=tuple(gpu.name for gpu in detected.usable),
        driver=detected.driver,
        capability=detected.first.capability if detected.first else None,
    )


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def compiler_version(compiler: str) -> str | None:
    """The line of `compiler --version` with the release, cached; None if it does not run."""
    path = shutil.which(compiler)
    if path is None:
        return None
    if path not in VERSION_BY_PATH:
        lines = (output_of([path, "--version"], limit_s=VERSION_LIMIT_S) or "").strip().splitlines()
        if not lines:
            return None
        releases = [line for line in lines if NVCC_RELEASE_TEXT in line]
        VERSION_BY_PATH[path] = [*releases, *lines][0]
    return VERSION_BY_PATH[path]


def nvcc_release(compiler: str) -> str | None:
    """CUDA release of an nvcc, such as `13.0`; None for another compiler or a missing one."""
    match = re.search(rf"{NVCC_RELEASE_TEXT}, release (\d+\.\d+)", compiler_version(compiler) or "")
    return match[1] if match else None


def installed_version(package: str) -> str | None:
    """Version of an installed package, by metadata (importing torch is slow); None without it."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


@functools.cache
def processor_facts() -> tuple[tuple[str, str], ...]:
    """Name and value of each line of /proc/cpuinfo, of all cores; empty without that file."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


def count_memory_kills() -> int:
    """Number of processes that the system's out-of-memory killer ended since boot; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def available_memory() -> int:
    """Bytes that a new process can use: the machine's free memory, or the control group's if less.
    File caches of the group count as free, because the kernel drops them on demand."""
    free_bytes = int(psutil.virtual_memory().available)
    files = [CONTROL_GROUP / f"memory.{name}" for name in ("max", "current", "stat")]
    try:
        limit, used, statistics = (file.read_text() for file in files)
        counters = dict(line.split() for line in statistics.splitlines())
        reclaimable = sum(int(counters.get(name, 0)) for name in RECLAIMABLE)
        return min(free_bytes, int(limit) - int(used) + reclaimable)
    except (OSError, ValueError):  # No control group, or one without a limit.
        return free_bytes


@functools.cache
def vector_lanes() -> int:
    """Number of float32 elements in this processor's widest vector; 1 if unknown."""
    # Flags of an x86 processor, or an Arm one.
    values = [value for name, value in processor_facts() if name in ("flags", "Features")]
    flags = " ".join(values).split()
    return next((lanes for flag, lanes in LANES_BY_FLAG.items() if flag in flags), 1)


@functools.cache
def processor_identity() -> str:
    """Hash of the processor's model and features, from /proc/cpuinfo; without that, of its name."""
    lines = [f"{name}: {value}" for name, value in processor_facts() if name in IDENTIFYING_LINES]
    # A dict keeps the order, and each core's equal lines become one.
    features = "\n".join([platform.machine(), *dict.fromkeys(lines)])
    return content_hash(features if lines else platform.processor())
