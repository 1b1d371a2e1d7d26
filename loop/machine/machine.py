"""Facts about this machine that need no torch: processor, compilers, driver, GPUs."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from loop.base.documents import content_hash
from loop.machine.gpus import gpus
from loop.model.record import Machine

Release = tuple[int, int]
"""A CUDA release, as in (12, 4)."""

OLDEST_DRIVER = {11: "R450", 12: "R525", 13: "R580"}
"""CUDA major release to the oldest driver branch that runs its machine code, for all minor
releases. PTX, which the driver compiles, needs a driver of the exact release
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1)."""
KNOWN_FROM: dict[str, Release] = {
    "sm_75": (10, 0),
    "sm_80": (11, 0),
    "sm_86": (11, 1),
    "sm_87": (11, 4),
    "sm_88": (13, 0),
    "sm_89": (11, 8),
    "sm_90": (12, 0),  # CUDA 12.0 is the first with sm_90a, Hopper's full instruction set.
    "sm_100": (12, 8),
    "sm_101": (12, 8),
    "sm_103": (12, 9),
    "sm_110": (13, 0),
    "sm_120": (12, 8),
    "sm_121": (12, 9),
}
"""Architecture to the first CUDA toolkit that compiles for it (release notes of the toolkits)."""
DROPPED_IN: dict[str, Release] = {
    **dict.fromkeys(("sm_35", "sm_37"), (12, 0)),
    **dict.fromkeys(("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_101"), (13, 0)),
}
"""Architecture to the first CUDA toolkit that no longer compiles for it."""
WHERE = "https://developer.nvidia.com/cuda-toolkit-archive"


def release_of(text: str) -> Release:
    """Major and minor number of a release: `13.0` becomes (13, 0)."""
    major, _, minor = text.partition(".")
    return int(major), int(re.match(r"\d*", minor)[0] or 0)  # type: ignore[index]


def too_new(what: str, toolkit: str, cuda: Release | None, driver: str | None) -> str:
    """Why this driver cannot run code from this toolkit; empty if it can, or if that is unknown.

    `what`: what was built with the toolkit. `cuda`: newest release that the driver supports.
    """
    major = release_of(toolkit)[0]
    if cuda is None or major <= cuda[0]:
        return ""
    branch = OLDEST_DRIVER.get(major)
    needed = f"driver {branch} or newer" if branch else "a newer driver"
    runs = f"{driver or 'an older one'}, which runs code up to CUDA {_text(cuda)}"
    return f"{what} {toolkit} needs {needed}, this machine has {runs}"


def older_toolkit(toolkit: str, cuda: Release | None) -> str:
    """The fix for `too_new`: a newer driver or an older toolkit."""
    branch = OLDEST_DRIVER.get(release_of(toolkit)[0])
    newer = f"install driver {branch} or newer" if branch else "install a newer driver"
    older = f"a CUDA {cuda[0]} toolkit" if cuda else "an older CUDA toolkit"
    return f"{newer}, or use {older}: name its nvcc in target.yaml, or put it first on the PATH"


def unknown_gpu(toolkit: str, architecture: str) -> str:
    """Why this toolkit cannot compile for the architecture; empty if it can or that is unknown."""
    release = release_of(toolkit)
    first, dropped = KNOWN_FROM.get(architecture), DROPPED_IN.get(architecture)
    if first is not None and release < first:
        return f"nvcc {toolkit} does not know {architecture}: CUDA {_text(first)} is the first that does"
    if dropped is not None and release >= dropped:
        return f"nvcc {toolkit} compiles for {architecture} no more: CUDA {_text(dropped)} dropped it"
    return ""


def fitting_toolkit(architecture: str, cuda: Release | None) -> str:
    """Advice: install a toolkit that compiles for this GPU and that its driver supports."""
    first, dropped = KNOWN_FROM.get(architecture), DROPPED_IN.get(architecture)
    bounds = [f"CUDA {_text(first)} or newer"] if first else []
    ends = [end for end in (dropped, (cuda[0] + 1, 0) if cuda else None) if end]
    bounds += [f"older than {_text(min(ends))}"] if ends else []
    expected = ", ".join(bounds)
    return f"install the CUDA toolkit{f' ({expected})' if expected else ''}: {WHERE}"


def _text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def builds_for(flags: Sequence[str], architecture: str) -> bool:
    """True if compiler flags ask for code for this architecture, by name or as `native`."""
    text = " ".join(flags)
    return bool(re.search(rf"\b{architecture}[af]?\b|-(?:arch|-gpu-architecture)[= ]native\b", text))


ASK_LIMIT_S = 10
LOOKS, LOOK_EVERY_S = 10, 0.02
"""Reads of the run queue, and seconds between them: one read misses programs waiting for a disk."""
NVCC_SAYS = "Cuda compilation tools"
"""Start of the line in which `nvcc --version` names its release; its first line does not."""


VERSIONS: dict[str, str] = {}
"""Version lines of compilers that ran, by path."""


@functools.cache
def machine() -> Machine:
    """Facts about this machine, which every result carries. Read once per process."""
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
        load=load_per_core(cores()),
    )


def load_per_core(
    cores: int, proc: Path = Path("/proc"), sleep: Callable[[float], None] = time.sleep
) -> float | None:
    """Other programs that run or wait for a core, per core; None if the system does not tell."""
    waiting = []
    for _ in range(LOOKS):
        try:
            waiting.append(int((proc / "loadavg").read_text().split()[3].partition("/")[0]) - 1)
        except (OSError, IndexError, ValueError):
            return None
        sleep(LOOK_EVERY_S)
    return max(0.0, sum(waiting) / len(waiting)) / cores


def cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def compiler_version(compiler: str) -> str | None:
    """The line of `compiler --version` with the release; None if it does not run.

    The answer is cached; a compiler that did not run is asked again.
    """
    place = shutil.which(compiler)
    if place is None or place in VERSIONS:
        return VERSIONS[place] if place else None
    command = [place, "--version"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (PermissionError, FileNotFoundError, subprocess.TimeoutExpired):
        return None
    lines = asked.stdout.strip().splitlines() if asked.returncode == 0 else []
    if lines:
        VERSIONS[place] = next((line for line in lines if NVCC_SAYS in line), lines[0])
    return VERSIONS.get(place)


def nvcc_release(compiler: str) -> str | None:
    """CUDA release of an nvcc, such as `13.0`; None for another compiler or a missing one."""
    release = re.search(rf"{NVCC_SAYS}, release (\d+\.\d+)", compiler_version(compiler) or "")
    return release[1] if release else None


def installed(package: str) -> str | None:
    """Version of an installed package, from its metadata because importing torch takes seconds."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor_lines() -> list[str]:
    """Lines of /proc/cpuinfo; empty outside Linux."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []


GROUP = Path("/sys/fs/cgroup")
RECLAIMED = ("inactive_file", "active_file", "slab_reclaimable")
"""Counters in a control group's memory.stat for memory that the kernel frees on demand."""


def killed_for_memory() -> int:
    """Number of processes that the system's out-of-memory killer ended since boot; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0


def available_memory() -> int:
    """Bytes that a new process can use: the machine's free memory, or the control group's if less.

    File caches of the group count as free, because the kernel drops them on demand.
    """
    free = int(psutil.virtual_memory().available)
    try:
        most, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        counters = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return min(free, most - used + sum(int(counters.get(name, 0)) for name in RECLAIMED))
    except (OSError, ValueError):  # No control group, or one without a limit.
        return free


def vector_lanes() -> int:
    """Number of float32 elements in this processor's widest vector; 1 if unknown."""
    flags = processor_flags()
    return next((lanes for flag, lanes in LANES.items() if flag in flags), 1)


LANES = {"avx512f": 16, "avx": 8, "sse2": 4, "asimd": 4}
"""Processor flag to float32 elements per vector, widest first."""


@functools.cache
def processor_flags() -> frozenset[str]:
    """All flags (x86) or features (Arm) of the first processor in /proc/cpuinfo."""
    for line in _processor_lines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(words.split())
    return frozenset()


IDENTIFYING_LINES = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
"""Lines of /proc/cpuinfo that decide which instructions a compiler chooses."""


@functools.cache
def processor_identity() -> str:
    """Hash of the processor's model and features, from /proc/cpuinfo; else of its name."""
    rows = (line.partition(":") for line in _processor_lines())
    facts = dict.fromkeys(
        f"{name.strip()}:{words}" for name, _, words in rows if name.strip() in IDENTIFYING_LINES
    )
    return content_hash("\n".join([platform.machine(), *facts]) if facts else platform.processor())
