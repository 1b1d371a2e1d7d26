"""Whether there is anything to search for is a verdict of the gate on both ends, workload by workload."""

import random
from collections.abc import Sequence

import pytest

from loop.bisect.trying import judge_blocks
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
    end, slower, why = judge_blocks(alike())
    assert end is not None
    assert ("no_regression", ()) == (end.outcome, slower)
    assert "within 2% of the good one on 3 of 3 workloads" in why


def test_one_slower_workload_is_a_regression_there() -> None:
    """Its eight per cent would be one and a half in the mean of all five."""
    expected = None, ("one",), "slower on 1 of 5 workloads"
    assert expected == judge_blocks({**alike(4), "one": blocks(0.08)})


def test_what_is_faster_is_no_regression_but_said() -> None:
    """The ends may be swapped."""
    end, _, why = judge_blocks({**alike(2), "one": blocks(-0.2)})
    assert end is not None
    assert ("no_regression", True) == (end.outcome, end.swapped)
    assert "faster on 1 (are they swapped?)" in why


@pytest.mark.parametrize(("step", "is_slower"), [(0.0, False), (0.08, True), (0.5, True)])
def test_blocks_that_are_far_off_change_nothing(step: float, is_slower: bool) -> None:
    """One in ten, as on a machine that does something else as well."""
    for seed in range(20):
        logs = {"one": blocks(step, seed=seed, count=MAX_BLOCKS, outliers=0.1)}
        end, slower, _ = judge_blocks(logs)
        assert (is_slower, "no_regression") == (bool(slower), end.outcome if end else "no_regression")


def test_open_workloads_are_judged_by_their_mean() -> None:
    """Each by itself scatters too much."""
    calm = {str(number): blocks(0.0, 0.06, number, count=MAX_BLOCKS) for number in range(12)}
    end, _, why = judge_blocks(calm)
    assert end is not None
    assert ("no_regression", True) == (end.outcome, "in the mean of" in why)
    assert judge_blocks({name: [value + 0.05 for value in logs] for name, logs in calm.items()})[0] is None
