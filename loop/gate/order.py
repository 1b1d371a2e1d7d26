"""In which order workloads are checked, and which are checked again as the first call of a fresh process."""

import random
from collections.abc import Iterable, Sequence
from itertools import chain

from loop.model.dtypes import Device
from loop.model.target import Workload
from loop.model.workloads import accepts
from loop.workers.bench import Side

FIRST_CALLS = 2
"""Workloads that are checked once more as the first call of a fresh process. On a GPU one: CUDA starts slowly."""


def values_key(workload: Workload) -> tuple[str, int]:
    """The identity of a workload: its name and the seed of its values."""
    return workload.name, workload.seed


def of_one_shape(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Every workload once; those of one name, which differ in their values, together."""
    wanted: dict[str, dict[int, Workload]] = {}
    for workload in workloads:
        wanted.setdefault(workload.name, {})[workload.seed] = workload
    return [list(seeds.values()) for seeds in wanted.values()]


def shuffle(groups: list[list[Workload]]) -> None:
    """Shuffle workloads, and the values of each, in an order that follows from their seeds."""
    draw = _draw(chain(*groups))
    draw.shuffle(groups)
    for same in groups:
        draw.shuffle(same)


def _draw(workloads: Iterable[Workload]) -> random.Random:
    return random.Random(repr([values_key(workload) for workload in workloads]))


def checked_again(side: Side, workloads: Sequence[Workload], device: Device) -> set[tuple[str, int]]:
    """Workloads to check again in a fresh process; none for programs, and none under the emulator."""
    if side.kind == "command" or side.emulated:
        return set()
    keys = [values_key(workload) for workload in workloads if accepts(side, workload)]
    most = 1 if device == "cuda" else FIRST_CALLS
    return set(_draw(workloads).sample(keys, min(most, len(keys))))
