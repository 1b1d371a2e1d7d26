"""Facts about this machine that need no torch: processor, compilers, driver, GPUs."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from loop.base.documents import content_hash
from loop.machine.busy import load
from loop.machine.gpus import gpus
from loop.model.dtypes import ITEM_SIZES, Dtype
from loop.model.record import Machine

ASK_LIMIT_S = 10
NVCC_SAYS = "Cuda compilation tools"
"""How the line begins in which nvcc names its release; its first says only who it is."""
CPUS = Path("/sys/devices/system/cpu")
FASTEST_CLOCK_HZ = 6.5e9
"""No processor on sale runs faster; the highest turbo clock of 2026 is 6.2 GHz."""
CLOCK_SLACK = 1.1
"""A named turbo clock may be beaten by this factor: overclocking, and drivers that round it down."""
NAMES_TURBO = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
"""Drivers whose highest clock is the turbo clock; acpi-cpufreq, for one, names the base clock."""


VERSIONS: dict[str, str] = {}
"""Versions of compilers that have told them, by path."""


@functools.cache
def machine() -> Machine:
    """What stands beside every number."""
    driver = gpus()
    names = [line.split(":", 1)[1].strip() for line in _processor_lines() if line.startswith("model name")]
    return Machine(
        name=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        processor=names[0] if names else platform.processor() or platform.machine(),
        cores=cores(),
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        torch=installed("torch"),
        compiler=compiler_version("g++"),
        nvcc=nvcc_release("nvcc"),
        gpus=tuple(gpu.name for gpu in driver.usable),
        driver=driver.driver,
        capability=driver.first.capability if driver.first else None,
        load=load(cores()),
    )


def cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compiler_version(compiler: str) -> str | None:
    """The line of a compiler's version text that tells its release; None when it is not there, or does not run.

    A version is asked once; a compiler that did not run is asked again.
    """
    place = shutil.which(compiler)
    if place is not None and place not in VERSIONS:
        lines = (_ask([place, "--version"]) or "").splitlines()
        version = next((line for line in lines if NVCC_SAYS in line), lines[0] if lines else None)
        if version is None:
            return None
        VERSIONS[place] = version
    return VERSIONS[place] if place is not None else None


def nvcc_release(compiler: str) -> str | None:
    """The CUDA release of an nvcc, as in 13.0; None for another compiler, or one that is not there."""
    release = re.search(rf"{NVCC_SAYS}, release (\d+\.\d+)", compiler_version(compiler) or "")
    return release[1] if release else None


def installed(package: str) -> str | None:
    """Version of a package by its metadata: importing torch takes seconds."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor_lines() -> list[str]:
    """What the system says of its processors; nothing outside Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []


def _ask(command: list[str]) -> str | None:
    """Output of a quick command; None when it is missing or fails. Raises OSError when nothing can be started."""
    if shutil.which(command[0]) is None:
        return None
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (PermissionError, FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() if completed.returncode == 0 else None


GROUP = Path("/sys/fs/cgroup")
RECLAIMED = ("inactive_file", "active_file", "slab_reclaimable")
"""What a control group's memory.stat names that is given up where it is needed."""


def killed_for_memory() -> int:
    """Processes that the system has killed for want of memory since it started; 0 where it does not tell."""
    with contextlib.suppress(OSError, ValueError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def available_memory() -> int:
    """Bytes that a new process may still use: of the machine, or of the control group where that is less.

    What a group holds of files counts as free: the system gives it up for a process.
    """
    free = int(psutil.virtual_memory().available)
    try:
        most, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        counters = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return min(free, most - used + sum(int(counters.get(name, 0)) for name in RECLAIMED))
    except (OSError, ValueError):  # No control group, or one without a limit.
        return free


def peak_flops_per_s(threads: int, dtype: Dtype) -> float | None:
    """Floating-point operations a second that so many threads cannot exceed; None where nothing is known.

    An upper bound, for calling a result impossible: the highest clock that the system names (in a virtual machine
    it names none, then the fastest there is), times what the widest units could do in a cycle. Real kernels stay
    well below it: for a roofline measure one (`bench.roof`).
    """
    per_cycle = flops_per_cycle(processor_flags(), dtype)
    return threads * fastest_clock_hz() * per_cycle if per_cycle else None


def flops_per_cycle(flags: frozenset[str], dtype: Dtype) -> float | None:
    """What one core could do in a cycle, by the flags of /proc/cpuinfo; None for a processor that is not known.

    x86: two fused multiply-add units, and two adders beside them as in Zen; without FMA two multipliers and two
    adders. Two-byte types also by their own instructions; AMX computes 1024 a cycle in them (Intel's optimisation
    manual), and takes no wider ones. Arm: six 128-bit units, or two of 512 bits.
    """
    single = _single_flops(flags)
    if single is None:
        return None
    narrow = ITEM_SIZES[dtype] == 2
    if "amx_tile" in flags and narrow:
        return single + 1024
    if narrow and flags & {"bf16", "i8mm"}:
        return 4 * single
    wider = narrow and flags & {"avx512_bf16", "avx512_fp16", "avx_ne_convert", "asimdhp", "fphp"}
    return (2 if wider else 0.5 if dtype == "float64" else 1) * single


def _single_flops(flags: frozenset[str]) -> float | None:
    """Operations of one core in a cycle on float32 in its vector units."""
    if "sme" in flags:  # A matrix unit, shared by cores.
        return None
    if flags & {"asimd", "sve"}:
        return 64
    for lanes, needed in ((16, {"avx512f"}), (8, {"avx", "fma"}), (8, {"avx"}), (4, {"sse2"})):
        if needed <= flags:
            return lanes * (6 if "fma" in flags or lanes == 16 else 4)
    return None


def vector_lanes() -> int:
    """Elements of type float32 in the widest vector that this processor has; 1 where nothing is known."""
    flags = processor_flags()
    return next((lanes for flag, lanes in LANES.items() if flag in flags), 1)


LANES = {"avx512f": 16, "avx": 8, "sse2": 4, "asimd": 4}
"""Flag to the float32 elements of a vector, widest first."""


@functools.cache
def processor_flags() -> frozenset[str]:
    """Everything /proc/cpuinfo lists as flags (x86) or features (Arm) of the first processor."""
    for line in _processor_lines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


TELLING = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""Lines of /proc/cpuinfo by which compilers choose instructions."""


@functools.cache
def processor_identity() -> str:
    """Hash of what this processor is and can do, by /proc/cpuinfo; of its name where there is none."""
    rows = (line.partition(":") for line in _processor_lines())
    facts = dict.fromkeys(f"{name.strip()}:{words}" for name, _, words in rows if name.strip() in TELLING)
    return content_hash("\n".join([platform.machine(), *facts]) if facts else platform.processor())


def fastest_clock_hz() -> float:
    """The highest turbo clock that the system names, with slack; else one that no processor reaches."""
    try:
        drivers = {path.read_text().strip() for path in CPUS.glob("cpu*/cpufreq/scaling_driver")}
        clocks = [int(path.read_text()) * 1e3 for path in CPUS.glob("cpu*/cpufreq/cpuinfo_max_freq")]
    except (OSError, ValueError):
        return FASTEST_CLOCK_HZ
    named = clocks and drivers and drivers <= set(NAMES_TURBO)
    return CLOCK_SLACK * max(clocks) if named else FASTEST_CLOCK_HZ
