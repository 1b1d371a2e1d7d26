"""Whether there is anything to search for is a verdict of the gate on both ends, workload by workload."""

import random
from collections.abc import Sequence

import pytest

from loop.bisect.gate import ruling
from loop.timing.verdicts import MAX_BLOCKS


def blocks(
    step: float, sd: float = 0.005, seed: int = 0, *, count: int = 20, outliers: float = 0.0
) -> list[float]:
    """Log ratios of a bad end that is slower by `step`; a share of them is far off, either way."""
    rng = random.Random(f"{step} {sd} {seed}")
    return [step + rng.gauss(0, 0.5 if rng.random() < outliers else sd) for _ in range(count)]


def alike(count: int = 3) -> dict[str, Sequence[float]]:
    """Workloads on which nothing changed."""
    return {f"same {number}": blocks(0.0, seed=number) for number in range(count)}


def test_ends_that_are_alike_are_no_regression() -> None:
    """Whatever builds of the same source may differ by: the gate sees these two."""
    found = ruling(alike())
    assert ("no_regression", ()) == (found.outcome, found.slower)
    assert "within 2% of the good one on 3 of 3 workloads" in found.why


def test_one_slower_workload_is_a_regression_there() -> None:
    """Its eight per cent would be one and a half in the mean of all five."""
    found = ruling({**alike(4), "one": blocks(0.08)})
    assert ("search", ("one",)) == (found.outcome, found.slower)
    assert "slower on 1 of 5 workloads" == found.why


def test_what_is_faster_is_no_regression_but_said() -> None:
    """The ends may be swapped."""
    found = ruling({**alike(2), "one": blocks(-0.2)})
    assert "no_regression" == found.outcome
    assert "faster on 1 (are they swapped?)" in found.why


@pytest.mark.parametrize(("step", "outcome"), [(0.0, "no_regression"), (0.08, "search"), (0.5, "search")])
def test_blocks_that_are_far_off_change_nothing(step: float, outcome: str) -> None:
    """One in ten, as on a machine that does something else as well."""
    for seed in range(20):
        logs = {"one": blocks(step, seed=seed, count=MAX_BLOCKS, outliers=0.1)}
        assert outcome == ruling(logs).outcome


def test_open_workloads_are_judged_by_their_mean() -> None:
    """Each by itself scatters too much."""
    calm = {str(number): blocks(0.0, 0.06, number, count=MAX_BLOCKS) for number in range(12)}
    assert "in the mean of" in ruling(calm).why
    assert "no_regression" == ruling(calm).outcome
    assert "search" == ruling({name: [value + 0.05 for value in logs] for name, logs in calm.items()}).outcome


def test_what_noise_may_hide_is_left_open() -> None:
    """With what would help."""
    found = ruling({"one": blocks(0.01, 0.07, count=MAX_BLOCKS)})
    assert "inconclusive" == found.outcome
    assert "too noisy to judge" in found.why
