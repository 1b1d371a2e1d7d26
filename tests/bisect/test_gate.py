"""A search for a slower commit uses the workloads on which the gate finds the bad end slower."""

import random

import pytest

from loop.bisect.trying import choose_workloads
from loop.timing.verdicts import MAX_BLOCKS


def blocks(
    step: float, sd: float = 0.005, seed: int = 0, *, count: int = 20, outliers: float = 0.0
) -> list[float]:
    """Log ratios of a bad end that is slower by `step`; a share of them is far off, either way."""
    rng = random.Random(f"{step} {sd} {seed}")
    return [step + rng.gauss(0, 0.5 if rng.random() < outliers else sd) for _ in range(count)]


ALIKE = {f"same {number}": blocks(0.0, seed=number) for number in range(4)}
"""Workloads on which nothing changed."""


def test_one_slower_workload_is_searched_alone() -> None:
    """Its eight per cent would be one and a half in the mean of all five."""
    assert ("slower",) == choose_workloads({**ALIKE, "slower": blocks(0.08)})


def test_without_a_slower_workload_open_ones_are_searched_or_all() -> None:
    """Each open one by itself scatters too much; their mean may tell."""
    assert ("open",) == choose_workloads({**ALIKE, "open": blocks(0.0, 0.06, count=MAX_BLOCKS)})
    assert tuple(ALIKE) == choose_workloads(ALIKE)


@pytest.mark.parametrize(("step", "is_slower"), [(0.0, False), (0.08, True), (0.5, True)])
def test_blocks_that_are_far_off_change_nothing(step: float, is_slower: bool) -> None:
    """One in ten, as on a machine that does something else as well."""
    for seed in range(20):
        noisy = blocks(step, seed=seed, count=MAX_BLOCKS, outliers=0.1)
        assert is_slower == (choose_workloads({**ALIKE, "noisy": noisy}) == ("noisy",))
