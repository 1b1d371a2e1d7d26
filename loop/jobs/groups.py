"""Devices and what may be compared: a group is devices of one kind, one driver and one speed."""

import contextlib
import functools
import math
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TypeVar

import loop
from loop.base.processes import python_path
from loop.machine.gpus import gpus
from loop.machine.machine import installed, processor_identity
from loop.model.jobs import JobRun, Where

DRIFT = (0.03, 0.25)
"""Share by which an anchor may move during a job: of a GPU, of a processor, which is shared."""
APART = (0.05, 0.5)
"""Share by which a device's best anchor may differ from the median of its group."""
FIELDS = ("uuid", "power.limit", "clocks.max.sm")
ASK_LIMIT_S = 60


@functools.cache
def devices(*, gpu: bool) -> tuple[Where, ...]:
    """The GPUs of this machine that a CUDA program may use, in its order; its processor where there is none."""
    found = gpus() if gpu else None
    known = {"host": platform.node(), "torch": installed("torch") or "", "loop": loop.__version__}
    if found is None or not found.usable:
        return (Where(uuid=processor_identity()[:16], **known),)
    cuda = ".".join(map(str, found.cuda)) if found.cuda else ""
    limits = _limits()
    return tuple(
        Where(
            device=one.name,
            uuid=one.uuid,
            driver=found.driver or "",
            cuda=cuda,
            **limits.get(one.uuid, {}),
            **known,
        )
        for one in found.usable
    )


def _limits() -> Mapping[str, Mapping[str, float | int]]:
    """UUID to power limit and highest clock, as far as nvidia-smi tells."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, dict[str, float | int]] = {}
    for line in done.stdout.splitlines():
        uuid, power, clock = (*(cell.strip() for cell in line.split(",")), "", "")[:3]
        told = {"power_limit_w": _number(power), "clock_mhz": _number(clock)}
        found[uuid] = {name: value for name, value in told.items() if value is not None}
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # `[N/A]`
        return None


def anchor(where: Where, env: Mapping[str, str]) -> tuple[float, ...]:
    """Microseconds of the anchor on a device, in a process of its own; empty where it did not run."""
    kind = "cpu" if where.device == "cpu" else "cuda"
    command = [sys.executable, "-P", "-m", "loop.machine.anchor", kind]
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        env = {**env, "PYTHONPATH": python_path()}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
        return (float(done.stdout),)
    return ()


def doubts(jobs: Iterable[JobRun]) -> dict[str, str]:
    """UUID to why a device is set aside: its anchor drifted in a job, or is slower than those of its group."""
    timed = [job for job in jobs if len(job.anchor_us) == 2]
    found: dict[str, str] = {}
    for job in timed:
        drift = max(job.anchor_us) / min(job.anchor_us) - 1
        if drift > DRIFT[job.device == "cpu"]:
            found.setdefault(job.uuid, f"its anchor moved by {drift:.1%} during a job")
    for group, members in groups(timed).items():
        least: dict[str, float] = {}
        for job in members:
            least[job.uuid] = min(*job.anchor_us, least.get(job.uuid, math.inf))
        usual = statistics.median(least.values())
        for uuid, us in least.items():
            if abs(us / usual - 1) > APART[members[0].device == "cpu"]:
                found.setdefault(uuid, f"its anchor takes {us:.0f} us, {usual:.0f} us on others of {group}")
    return found


def group_of(where: Where) -> str:
    """What a device has to share with another for their ratios to stand in one mean, in words."""
    named = {"driver": where.driver, "CUDA": where.cuda, "torch": where.torch}
    parts = [where.device, *(f"{name} {value}" for name, value in named.items() if value)]
    parts += [f"{where.power_limit_w:g} W"] if where.power_limit_w else []
    parts += [f"{where.clock_mhz} MHz"] if where.clock_mhz else []
    return ", ".join(parts if where.device != "cpu" else [*parts, f"processor {where.uuid}"])


Device = TypeVar("Device", bound=Where)


def groups(found: Iterable[Device]) -> dict[str, list[Device]]:
    """Devices by their group."""
    made: dict[str, list[Device]] = {}
    for one in found:
        made.setdefault(group_of(one), []).append(one)
    return made
