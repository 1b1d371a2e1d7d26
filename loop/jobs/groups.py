"""Devices and what may be compared: a group is devices of one kind, one driver and one speed."""

import functools
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import TypeVar

import loop
from loop.machine.gpus import gpus
from loop.machine.machine import installed, processor_identity
from loop.model.jobs import Where

FIELDS = ("uuid", "power.limit", "clocks.max.sm")
ASK_LIMIT_S = 60


@functools.cache
def devices(*, gpu: bool) -> tuple[Where, ...]:
    """The GPUs of this machine that a CUDA program may use, in its order; its processor where there is none."""
    detected = gpus() if gpu else None
    known = {"host": platform.node(), "torch": installed("torch") or "", "loop": loop.__version__}
    if detected is None or not detected.usable:
        return (Where(uuid=processor_identity()[:16], **known),)
    cuda = ".".join(map(str, detected.cuda)) if detected.cuda else ""
    limits = _limits()
    return tuple(
        Where(
            device=gpu_here.name,
            uuid=gpu_here.uuid,
            driver=detected.driver or "",
            cuda=cuda,
            **limits.get(gpu_here.uuid, {}),
            **known,
        )
        for gpu_here in detected.usable
    )


def _limits() -> Mapping[str, Mapping[str, float | int]]:
    """UUID to power limit and highest clock, as far as nvidia-smi tells."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    limits: dict[str, dict[str, float | int]] = {}
    for line in completed.stdout.splitlines():
        uuid, power, clock = (*(cell.strip() for cell in line.split(",")), "", "")[:3]
        values = {"power_limit_w": _number(power), "clock_mhz": _number(clock)}
        limits[uuid] = {name: value for name, value in values.items() if value is not None}
    return limits


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # `[N/A]`
        return None


def group_of(where: Where) -> str:
    """What a device has to share with another for their ratios to stand in one mean, in words."""
    named = {"driver": where.driver, "CUDA": where.cuda, "torch": where.torch}
    parts = [where.device, *(f"{name} {value}" for name, value in named.items() if value)]
    parts += [f"{where.power_limit_w:g} W"] if where.power_limit_w else []
    parts += [f"{where.clock_mhz} MHz"] if where.clock_mhz else []
    return ", ".join(parts if where.device != "cpu" else [*parts, f"processor {where.uuid}"])


Device = TypeVar("Device", bound=Where)


def groups(places: Iterable[Device]) -> dict[str, list[Device]]:
    """Devices by their group."""
    by_name: dict[str, list[Device]] = {}
    for place in places:
        by_name.setdefault(group_of(place), []).append(place)
    return by_name
