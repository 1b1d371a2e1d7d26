"""The posterior of a step: as numerical integration has it, and the same however the data are written down."""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from loop.bisect.change_point import Fit, Levels, Unit, bounds_of, units_of, weight_of, z_score
from tests.effort import counted

Series = dict[int, dict[int, list[float]]]
FREE = (-math.inf, math.inf)


def make_series(seed: int, counts: Mapping[int, Sequence[int]], at: int = 3, step: float = 1.0) -> Series:
    """Observations of positions with so many of each build; positions from `at` on are higher."""
    rng = random.Random(seed)
    return {
        position: {
            link: [rng.gauss(step * (position >= at), 0.7) for _ in range(count)]
            for link, count in enumerate(each)
        }
        for position, each in counts.items()
    }


def found(series: Series, ratio: float = 0.0, *, known: bool = False, prior: Sequence[float] = ()) -> Fit:
    """All steps in a series."""
    return Fit(units_of(series, FREE), prior, ratio, known=known)


def mass(series: Series, prior: Sequence[float] | None = None, **terms: float) -> list[float]:
    """Posterior at each position up to the last that was observed."""
    last = max(series)
    return found(series, **terms, prior=prior or [0.0] + [1 / last] * last).mass  # type: ignore[arg-type]


def integrated(series: Series, split: int, ratio: float = 0.0, *, known: bool = False) -> float:
    """log of the likelihood of a step after position `split`, integrated over both levels and sigma on a grid."""
    units = [(position, np.array(values)) for position, links in series.items() for values in links.values()]
    everything = np.concatenate([values for _, values in units])
    scale, middle = everything.std(), everything.mean()
    levels = middle + scale * np.linspace(-6, 6, 401)
    below, above = levels[:, None], levels[None, :]
    total = 0.0
    for sigma in scale * np.exp(np.linspace(-3, 3, 121)):
        log = np.where(above > below, 0.0, -np.inf)
        for position, values in units:
            level = below if position <= split else above
            weight = len(values) / (1 + len(values) * ratio)
            within = ((values - values.mean()) ** 2).sum()
            log = (
                log
                - len(values) * math.log(sigma)
                - (within + weight * (values.mean() - level) ** 2) / 2 / sigma**2
            )
        if known:
            log = log - below**2 / (2 * ratio * sigma**2) - math.log(sigma)
        total += float(np.exp(log).sum())
    return math.log(total)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("counts", "ratio", "known"),
    [
        ({0: [3], 2: [1], 4: [2], 6: [3]}, 0.0, False),
        ({0: [2], 5: [2]}, 0.0, False),
        ({0: [3, 2], 2: [2, 1], 4: [4], 6: [2, 2]}, 0.8, False),
        ({2: [2], 4: [2], 6: [3, 1]}, 0.5, True),
    ],
)
@pytest.mark.slow
def test_likelihoods_are_the_integrals(
    seed: int, counts: Mapping[int, Sequence[int]], ratio: float, known: bool
) -> None:
    """Against a sum over a grid of both levels and sigma: ratios of any two steps agree to two per cent."""
    series = make_series(seed, counts)
    fit = found(series, ratio, known=known)
    expected = [integrated(series, split, ratio, known=known) for split in fit.positions[:-1]]
    ours = [likelihood - fit.likelihoods[0] for likelihood in fit.likelihoods]
    assert [value - expected[0] for value in expected] == pytest.approx(ours, abs=0.02)


def test_a_known_level_without_differing_builds_is_just_zero() -> None:
    """Ratios to the good end's own binary: as if it had been observed at zero without end."""
    series = make_series(1, {2: [3], 4: [3], 6: [3]})
    many = {**series, 0: {0: [1e-9, -1e-9] * 3}}
    fit = Fit([Unit(0, 10**7, 0.0, 0.0), *units_of(series, FREE)], ())
    ours = found(series, known=True)
    assert fit.levels(1).step == pytest.approx(ours.levels(1).step, abs=1e-5)
    assert 0.0 == pytest.approx(ours.levels(0).low, abs=1e-6)
    assert (0, 2, 4, 6) == ours.positions
    assert max(many) == 6


def test_the_posterior_sums_to_one() -> None:
    """Over the candidates after the good end, whatever the data."""
    for seed in range(20):
        series = make_series(seed, {0: [3], 3: [1], 9: [2], 20: [3]}, at=seed)
        assert 1.0 == pytest.approx(math.fsum(mass(series)))
        assert 0.0 == mass(series)[0]


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_unit_and_origin_do_not_matter(ratio: float) -> None:
    """Logs to another base, or of times in another unit."""
    series = make_series(2, {0: [3, 1], 3: [2], 5: [1], 9: [4]})
    expected = pytest.approx(mass(series, ratio=ratio), abs=1e-9)
    for scale, shift in ((1.0, 100.0), (1e-6, 0.0), (1e6, -3e6)):
        moved = {
            position: {link: [scale * value + shift for value in values] for link, values in links.items()}
            for position, links in series.items()
        }
        assert expected == mass(moved, ratio=ratio)


def test_the_order_of_observations_does_not_matter() -> None:
    """Of a commit, and of the commits."""
    series = make_series(3, {0: [4], 3: [5], 9: [4]})
    turned = {position: {0: series[position][0][::-1]} for position in (9, 0, 3)}
    assert mass(series) == pytest.approx(mass(turned), abs=1e-12)


def test_builds_that_do_not_differ_are_one_build() -> None:
    """With ratio 0 observations of two layouts count as those of one."""
    series = make_series(4, {0: [4], 3: [2, 3], 9: [4]})
    one = {**series, 3: {0: [*series[3][0], *series[3][1]]}}
    assert mass(series) == pytest.approx(mass(one))


def test_positions_without_prior_stay_without() -> None:
    """And the others keep their shares between two observed positions."""
    series = make_series(5, {0: [4], 4: [4], 8: [4]}, at=2)
    prior = [0.0, 0.1, 0.3, 0.0, 0.1, 0.1, 0.2, 0.1, 0.1]
    ours = mass(series, prior)
    assert 0.0 == ours[3]
    assert 3.0 == pytest.approx(ours[2] / ours[1])
    assert [1 / 8] * 8 == mass(series, [0.0] * 9)[1:], "no prior at all: everything alike"


def test_a_step_down_is_not_believed() -> None:
    """The sign is known: where a rise of that size would be certain, a fall is less likely than anything else."""
    rise, fall = (make_series(6, {0: [6], 3: [6], 6: [6], 9: [6]}, at=5, step=step) for step in (2.0, -2.0))
    assert 0.999 < sum(mass(rise)[4:7])
    assert sum(mass(fall)[4:7]) < 3 / 9


def test_identical_observations_divide_by_nothing() -> None:
    """No scatter at all: certain where there is a step, finite where there is none."""
    apart = {0: {0: [1.0] * 3}, 4: {0: [1.0] * 2}, 8: {0: [2.0] * 3}}
    assert 1.0 == pytest.approx(sum(mass(apart)[5:]))
    same = {0: {0: [1.0] * 3}, 4: {0: [1.0]}, 8: {0: [1.0] * 3}}
    assert all(math.isfinite(value) for value in mass(same))


def test_one_observation_of_each_end_says_nothing() -> None:
    """There is no scatter to hold a step against."""
    assert (0.0,) == found({0: {0: [1.0]}, 8: {0: [5.0]}}).likelihoods


def test_a_thousand_candidates_cost_no_more_than_those_observed() -> None:
    """Likelihoods are worked out between observed positions only; counted in calls, a few hundred."""
    rng = random.Random(1)
    series = {position: {0: [rng.gauss(position > 500, 0.5) for _ in range(6)]} for position in range(0, 1025, 64)}
    prior = [0.0] + [1 / 1024] * 1024
    with counted() as effort:
        assert found(series, prior=prior).mass
    assert 12_000 > effort.calls


def test_a_build_weighs_less_the_more_builds_differ() -> None:
    """Never more than one over the ratio."""
    assert [5.0, 5 / 3.5, 2.0] == [weight_of(5, 0.0), weight_of(5, 0.5), weight_of(math.inf, 0.5)]


def test_z_is_as_rare_as_students_t() -> None:
    """Four degrees of freedom: t of 4.604 has a tail of 0.5 %, as a normal deviate of 2.576."""
    few = Levels(0.0, 4.604, 1.0, (2.0, 2.0), 4)
    assert 2.576 == pytest.approx(z_score(few), abs=1e-3)
    assert -2.576 == pytest.approx(z_score(Levels(4.604, 0.0, 1.0, (2.0, 2.0), 4)), abs=1e-3)
    assert 0.0 == z_score(Levels(0.0, 9.0, 1.0, (1.0, 1.0), 0))


def test_outliers_are_left_out_and_levels_are_not() -> None:
    """One value far from both levels goes; many of one build stay, at the bound."""
    rng = random.Random(8)
    good, bad = [rng.gauss(0, 1) for _ in range(8)], [rng.gauss(10, 1) for _ in range(8)]
    bounds = bounds_of([good, bad], 0.0, 10.0)
    assert -15 < bounds[0] < -5
    assert 15 < bounds[1] < 25
    series = {0: {0: [*good, 60.0]}, 3: {0: [-40.0, -41.0, -42.0]}, 5: {0: [5.0, 90.0]}, 8: {0: bad}}
    units = {unit.position: unit for unit in units_of(series, bounds)}
    assert (8, 3, 1, 8) == tuple(units[position].count for position in (0, 3, 5, 8))
    assert bounds[0] == pytest.approx(units[3].mean)


def test_without_enough_scatter_there_are_no_bounds() -> None:
    """Few observations, or all alike, or an end that was never observed."""
    assert FREE == bounds_of([[1.0, 2.0]], 0.0, 1.0)
    assert FREE == bounds_of([[1.0] * 9], 0.0, 1.0)
    assert FREE == bounds_of([[1.0, 2.0, 4.0, 8.0]], 0.0, math.nan)
