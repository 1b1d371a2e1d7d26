"""Facts about this machine that need no torch: processor, compilers, driver, GPUs."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import psutil

from loop.base.documents import content_hash
from loop.base.processes import output_of
from loop.machine.gpus import detect_gpus
from loop.model.record import Machine

Release = tuple[int, int]
"""A CUDA release, as in (12, 4)."""
OLDEST_DRIVER = {11: "R450", 12: "R525", 13: "R580"}
"""CUDA major release to the oldest driver branch that runs its machine code, for all minor
releases. PTX, which the driver compiles, needs a driver of the exact release
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1)."""
TOOLKIT_ARCHIVE = "https://developer.nvidia.com/cuda-toolkit-archive"


def explain_old_driver(
    subject: str, toolkit: str, newest_cuda: Release | None, driver: str | None
) -> tuple[str, str]:
    """Why this driver cannot run code from this toolkit (empty if it can, or if that is unknown), and the remedy.
    `subject`: what was built with the toolkit. `newest_cuda`: that the driver supports."""
    major = int(toolkit.partition(".")[0])
    if newest_cuda is None or major <= newest_cuda[0]:
        return "", ""
    branch = OLDEST_DRIVER.get(major)
    needed = f"driver {branch} or newer" if branch else "a newer driver"
    present = f"{driver or 'an older one'}, which runs code up to CUDA {newest_cuda[0]}.{newest_cuda[1]}"
    older = f"a CUDA {newest_cuda[0]} toolkit: name its nvcc in target.yaml, or put it first on the PATH"
    return f"{subject} {toolkit} needs {needed}, this machine has {present}", f"install {needed}, or use {older}"


def explain_unknown_gpu(compiler: str, architecture: str) -> str:
    """Why this nvcc cannot compile for the architecture; empty if it can, or if it does not list what it knows."""
    codes = (output_of([compiler, "--list-gpu-code"], limit_s=VERSION_LIMIT_S) or "").split()
    if not codes or architecture in codes:
        return ""
    return f"nvcc {nvcc_release(compiler)} compiles for {codes[0]} to {codes[-1]}, not for {architecture}"


def suggest_toolkit(architecture: str, newest_cuda: Release | None) -> str:
    """Advice: install a toolkit for this GPU, no newer than its driver supports (`newest_cuda`)."""
    bound = f", older than {newest_cuda[0] + 1}.0" if newest_cuda else ""
    return f"install a CUDA toolkit that knows {architecture}{bound}: {TOOLKIT_ARCHIVE}"


def requests_code_for(flags: Sequence[str], architecture: str) -> bool:
    """True if compiler flags ask for code for this architecture, by name (also as `sm_90a`) or `native`."""
    text = " ".join(flags)
    return bool(re.search(rf"\b{architecture}[af]?\b|-(?:arch|-gpu-architecture)[= ]native\b", text))


VERSION_LIMIT_S = 10
NVCC_RELEASE_TEXT = "Cuda compilation tools"
"""Start of the line in which `nvcc --version` names its release; its first line does not."""
VERSION_BY_PATH: dict[str, str] = {}  # Version lines of compilers that ran, by path.


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
        VERSION_BY_PATH[path] = next((line for line in lines if NVCC_RELEASE_TEXT in line), lines[0])
    return VERSION_BY_PATH[path]


def nvcc_release(compiler: str) -> str | None:
    """CUDA release of an nvcc, such as `13.0`; None for another compiler or a missing one."""
    match = re.search(rf"{NVCC_RELEASE_TEXT}, release (\d+\.\d+)", compiler_version(compiler) or "")
    return match[1] if match else None


def installed_version(package: str) -> str | None:
    """Version of an installed package, by metadata (importing torch is slow); None without it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def processor_facts() -> tuple[tuple[str, str], ...]:
    """Name and value of each line of /proc/cpuinfo, of all cores; empty without that file."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.is_file() else ""
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


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


def count_memory_kills() -> int:
    """Number of processes that the system's out-of-memory killer ended since boot; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def available_memory() -> int:
    """Bytes that a new process can use: the machine's free memory, or the control group's if less. File caches of
    the group count as free, because the kernel drops them on demand."""
    free_bytes = int(psutil.virtual_memory().available)
    try:
        limit, used = (int((CONTROL_GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        counters = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        reclaimable = sum(int(counters.get(name, 0)) for name in RECLAIMABLE)
        return min(free_bytes, limit - used + reclaimable)
    except (OSError, ValueError):  # No control group, or one without a limit.
        return free_bytes


@functools.cache
def vector_lanes() -> int:
    """Number of float32 elements in this processor's widest vector; 1 if unknown."""
    # Flags of an x86 processor, or an Arm one.
    flags = {flag for name, value in processor_facts() if name in ("flags", "Features") for flag in value.split()}
    return next((lanes for flag, lanes in LANES_BY_FLAG.items() if flag in flags), 1)


@functools.cache
def processor_identity() -> str:
    """Hash of the processor's model and features, from /proc/cpuinfo; without that, its name unhashed."""
    # A dict keeps the order, and each core's equal lines become one.
    features = dict.fromkeys(f"{name}: {value}" for name, value in processor_facts() if name in IDENTIFYING_LINES)
    return content_hash("\n".join([platform.machine(), *features]) if features else platform.processor())
