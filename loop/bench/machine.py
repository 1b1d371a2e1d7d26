"""Facts about this machine that need no torch: processor, compilers, driver, GPUs."""

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from loop.model.record import Machine

ASK_LIMIT_S = 10


@functools.cache
def machine() -> Machine:
    """What stands beside every number."""
    rows = _query_gpus()
    return Machine(
        name=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=cores(),
        memory_gb=round(psutil.virtual_memory().total / 2**30, 1),
        python=platform.python_version(),
        compiler=compiler_version("g++"),
        nvcc=_nvcc_release(),
        gpus=tuple(row[0] for row in rows),
        driver=rows[0][1] if rows else None,
    )


def cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@functools.cache
def compiler_version(compiler: str) -> str | None:
    """First line of a compiler's version text; None when it is not installed."""
    text = _ask([compiler, "--version"])
    return text.splitlines()[0] if text else None


def _nvcc_release() -> str | None:
    for line in (_ask(["nvcc", "--version"]) or "").splitlines():
        if "release" in line:
            return line.split("release")[1].split(",")[0].strip()
    return None


def _query_gpus() -> list[list[str]]:
    """Name and driver version of each GPU; empty without a driver."""
    text = _ask(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = [[cell.strip() for cell in line.split(",")] for line in (text or "").splitlines()]
    return [row for row in rows if len(row) == 2]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _ask(command: list[str]) -> str | None:
    """Output of a quick command; None when it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def available_memory() -> int:
    """Bytes that a new process may still use: of the machine, or of the control group where that is less."""
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        return min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # No control group, or one without a limit.
        return free
