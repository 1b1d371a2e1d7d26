"""Devices and what may be compared: a group is devices of one kind, one driver and one torch."""

import functools
import platform
from collections.abc import Iterable
from typing import TypeVar

import loop
from loop.machine.gpus import gpus
from loop.machine.machine import installed, processor_identity
from loop.model.jobs import Where


@functools.cache
def devices(*, gpu: bool) -> tuple[Where, ...]:
    """The GPUs of this machine that a CUDA program may use, in its order; its processor where there is none."""
    detected = gpus() if gpu else None
    known = {"host": platform.node(), "torch": installed("torch") or "", "loop": loop.__version__}
    if detected is None or not detected.usable:
        return (Where(uuid=processor_identity()[:16], **known),)
    cuda = ".".join(map(str, detected.cuda)) if detected.cuda else ""
    return tuple(
        Where(device=there.name, uuid=there.uuid, driver=detected.driver or "", cuda=cuda, **known)
        for there in detected.usable
    )


def group_of(where: Where) -> str:
    """What a device has to share with another for their ratios to stand in one mean, in words."""
    named = {"driver": where.driver, "CUDA": where.cuda, "torch": where.torch}
    parts = [where.device, *(f"{name} {value}" for name, value in named.items() if value)]
    return ", ".join(parts if where.device != "cpu" else [*parts, f"processor {where.uuid}"])


Device = TypeVar("Device", bound=Where)


def groups(places: Iterable[Device]) -> dict[str, list[Device]]:
    """Devices by their group."""
    by_name: dict[str, list[Device]] = {}
    for place in places:
        by_name.setdefault(group_of(place), []).append(place)
    return by_name
