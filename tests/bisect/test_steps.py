"""Where a step is, and whether there is one, whatever builds differ by."""

import math
import random

import pytest

from loop.bisect.change_point import Unit
from loop.bisect.steps import Steps

PRIOR = [0.0, *[1 / 40] * 40]


def steps(tau: float, step: float, seed: int = 0, count: int = 4) -> Steps:
    """Every other commit of forty, the step at 20."""
    draw, sd = random.Random(f"{tau} {step} {seed}"), 0.004
    units = [
        Unit(at, count, step * (at >= 20) + draw.gauss(0, math.hypot(tau, sd / count**0.5)), (count - 1) * sd**2)
        for at in range(0, 41, 2)
    ]
    return Steps(units, PRIOR)


def test_the_mass_is_a_distribution() -> None:
    """Nothing at the good end; what lies between two builds counts alike."""
    mass = steps(0.01, 0.03).mass
    assert 1.0 == pytest.approx(math.fsum(mass))
    assert 0.0 == mass[0]
    assert mass[19] == pytest.approx(mass[20])


def test_more_scatter_leaves_more_commits() -> None:
    """The same step is certain among builds that are alike, and spread out among builds that are not."""
    certain = [max(steps(0.0, 0.03, seed).mass) for seed in range(8)]
    spread = [max(steps(0.015, 0.03, seed).mass) for seed in range(8)]
    assert 0.49 < min(certain)
    assert 0.45 > math.fsum(spread) / 8


def test_the_doubt_is_small_with_a_step_and_large_without() -> None:
    """Builds differ by 1 %: ten on either side tell 3 % from nothing."""
    assert 0.02 > max(steps(0.01, 0.03, seed).doubt for seed in range(8))
    without = [steps(0.01, 0.0, seed).doubt for seed in range(8)]
    assert 0.5 < sorted(without)[4]


def test_a_step_down_is_none() -> None:
    """What got faster is no regression."""
    assert 0.9 < steps(0.005, -0.03).doubt


def test_numbers_without_noise_divide_by_nothing() -> None:
    """All builds the same but for the step, all observations the same."""
    units = [Unit(at, 2, 0.03 * (at >= 20), 0.0) for at in range(0, 41, 2)]
    found = Steps(units, PRIOR)
    assert 0.499 < found.mass[20]
    assert 1e-6 > found.doubt
    known = Steps(units[1:], PRIOR, known=True)
    assert 0.499 < known.mass[20]
