"""Who else uses the device: of a GPU its driver is asked before and after a measurement, of a CPU the kernel."""

import os
import time
from collections.abc import Generator

import psutil

from loop.base.processes import Tick
from loop.machine import crowding, sharing
from loop.machine.busy import crowd
from loop.machine.gpus import gpus
from loop.machine.machine import cores
from loop.machine.nvml import Sensors
from loop.machine.sharing import Company
from loop.workers.bench import Bench

REST_S = 2.0
"""How long the GPU is given to come to rest: what it says of its load may be a second old, and be our own."""


def warn_before(bench: Bench) -> Generator[Tick, None, str]:
    """What is to be said of others on the GPU before anything is timed; empty when nothing is."""
    sensors = bench.sensors
    if sensors is None:
        return ""
    busy = sensors.busy_percent()
    begun = time.monotonic()
    while busy and busy > sharing.BUSY_PERCENT and time.monotonic() - begun < REST_S:
        yield Tick(f"waiting for the GPU to rest, {busy} % busy")
        time.sleep(0.1)
        busy = sensors.busy_percent()
    said = sharing.warning(_name(), _company(sensors, busy))
    if said:
        yield Tick(said)
    return said


def warn_after(bench: Bench) -> str:
    """The same when everything was timed: somebody may have come meanwhile."""
    return sharing.warning(_name(), _company(bench.sensors, None)) if bench.sensors else ""


def warn_of_programs() -> Generator[Tick, None, str]:
    """What is to be said of other programs on our cores before anything is timed; empty when nothing is."""
    seen = yield from crowd()
    said = crowding.warning(cores(), seen.programs, seen.stolen)
    if said:
        yield Tick(said)
    return said


def _name() -> str:
    gpu = gpus().first
    return gpu.name if gpu else "the GPU"


def _company(sensors: Sensors, busy: int | None) -> Company:
    users, taken = sensors.users() or (), sensors.used_bytes()
    others = [user for user in users if user.pid != os.getpid()]
    ours = {child.pid for child in psutil.Process().children(recursive=True)}
    held = sum(user.memory_bytes or 0 for user in users)
    return Company(
        others=sharing.strangers(others, ours, set(psutil.pids())),
        loose_bytes=(taken or 0) - held,
        busy_percent=busy,
    )
