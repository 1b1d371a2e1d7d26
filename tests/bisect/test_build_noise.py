"""What builds differ by on their own: found in any scatter, whatever steps there are."""

import math
import random
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest

from loop.bisect import build_noise
from loop.bisect.change_point import Unit

UPPER = [position / 64 for position in range(65)]


def builds(levels: Sequence[float], sd: float = 0.002) -> list[Unit]:
    """One every other commit, observed four times."""
    return [Unit(2 * number, 4, level, 3 * sd**2) for number, level in enumerate(levels)]


def scattered(tau: float, steps: Sequence[float] = (), count: int = 16) -> list[Unit]:
    """Builds with these steps in equal distances."""
    draw = random.Random(f"{tau} {steps}")
    levels = [sum(steps[: number * (len(steps) + 1) // count]) for number in range(count)]
    return builds([level + draw.gauss(0, math.hypot(tau, 0.001)) for level in levels])


def test_the_shares_are_a_distribution() -> None:
    """Also of nothing, where they are the prior, and of one."""
    for units in ([], builds([0.1]), scattered(0.01)):
        assert 1.0 == pytest.approx(math.fsum(build_noise.shares(units, 0.002, UPPER)))
    assert build_noise.PRIOR == pytest.approx(build_noise.shares([], 0.002, UPPER))


@pytest.mark.parametrize("tau", [0.005, 0.01, 0.03])
@pytest.mark.parametrize("steps", [(), (0.3,), (0.2, -0.15), (0.1, 0.1, 0.1)])
def test_scatter_is_found_whatever_steps_there_are(tau: float, steps: Sequence[float]) -> None:
    """Within a factor of two: up, down, once or several times."""
    found = build_noise.typical(build_noise.shares(scattered(tau, steps), 0.002, UPPER))
    assert tau / 2 < found < 2 * tau


def test_builds_that_are_alike_have_none() -> None:
    """Counts of instructions: exactly alike but for a step."""
    exact = [Unit(position, 2, 0.03 * (position > 9), 0.0) for position in range(0, 20, 2)]
    assert 1e-3 > build_noise.typical(build_noise.shares(exact, 1e-6, UPPER))


def test_the_reference_of_pairs_is_a_build_as_well() -> None:
    """All others lie 3 % beside it: the more of them, the less it is scatter."""
    units = builds([0.03] * 8)[1:]
    assert 0.02 > build_noise.typical(build_noise.shares(units, 0.002, UPPER, known=True))


def test_relinked_builds_of_a_commit_hold_no_step() -> None:
    """What they differ by is scatter."""
    apart = [Unit(position, 4, level, 1e-5) for position in (4, 8) for level in (0.0, 0.05)]
    assert 0.01 < build_noise.typical(build_noise.shares(apart, 0.002, UPPER))


def test_the_forward_recursion_sums_over_all_ways_to_cut_the_history() -> None:
    """Against the sum itself, each stretch integrated by a rule."""
    units, sd, tau = builds([0.0, 0.012, 0.03, 0.028]), 0.002, 0.01
    line = build_noise._line(units, sd, UPPER, known=False)
    width = 0.05
    total = 0.0
    for count in range(4):
        for cuts in combinations(range(1, 4), count):
            edges, way = (0, *cuts, 4), 1.0
            for at in range(1, 4):
                way *= math.exp(line[at].steps if at in cuts else line[at].stays)
            for start, stop in pairwise(edges):
                way *= _stretch([one.mean for one in line[start:stop]], math.hypot(tau, sd / 2), width)
            total += way
    assert math.log(total) == pytest.approx(build_noise._likelihood(line, tau, math.log(width)), abs=1e-6)


def _stretch(means: Sequence[float], sd: float, width: float) -> float:
    """Mean density over levels, far beyond all of them on either side."""
    grid = [-0.2 + 1e-4 * step for step in range(4001)]
    density = [math.prod(_normal(mean - level, sd) for mean in means) for level in grid]
    return math.fsum(density) * 1e-4 / width


def _normal(away: float, sd: float) -> float:
    return math.exp(-((away / sd) ** 2) / 2) / sd / math.sqrt(2 * math.pi)
