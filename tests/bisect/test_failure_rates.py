"""Runs that pass or fail: the posterior as sums over all rates have it, plain bisection a special case of it."""

import math
import random

import numpy as np
import pytest

from loop.bisect.change_point import posterior
from loop.bisect.failure_rates import HYPOTHESES, Runs

PASS, FAIL = 1.0, 0.0


def mass(runs: dict[int, list[float]]) -> list[float]:
    """Posterior at each position up to the last."""
    fit, last = Runs(runs), max(runs)
    return posterior([0.0] + [1 / last] * last, fit.positions, fit.likelihoods)


def integrated(runs: dict[int, list[float]], split: int) -> float:
    """Likelihood of a step after position `split`, summed over a grid of both rates."""
    grid = (np.arange(4000) + 0.5) / 4000
    sides = [
        [value for position, values in runs.items() if (position > split) == after for value in values]
        for after in (False, True)
    ]
    failed, passed = ([values.count(kind) for values in sides] for kind in (FAIL, PASS))
    always = float(not failed[0] and not passed[1])
    uniform = float((grid ** failed[1] * (1 - grid) ** passed[1]).mean())
    beta = grid ** (-0.5 + failed[0]) * (1 - grid) ** (9 + passed[0])
    seldom = float(beta.mean()) / math.exp(math.lgamma(0.5) + math.lgamma(10) - math.lgamma(10.5))
    return 0.90 * always + 0.07 * (not failed[0]) * uniform + 0.03 * seldom * uniform


@pytest.mark.parametrize("seed", range(5))
def test_likelihoods_are_the_integrals(seed: int) -> None:
    """Against a sum over a grid of both rates, hypothesis by hypothesis."""
    rng = random.Random(seed)
    runs = {position: [float(rng.random() > 0.5 * (position > 4)) for _ in range(4)] for position in (0, 3, 6, 9)}
    fit = Runs(runs)
    for split, likelihood in zip(fit.positions, fit.likelihoods, strict=False):
        assert integrated(runs, split) == pytest.approx(math.exp(likelihood), rel=0.02)


def test_consistent_runs_leave_the_plain_hypothesis() -> None:
    """Passing, passing, failing, failing: between the second and the third, and always."""
    runs = {0: [PASS] * 2, 4: [PASS] * 2, 5: [FAIL] * 2, 9: [FAIL] * 2}
    assert 0.9 < mass(runs)[5]
    fit = Runs(runs)
    assert 0.97 < fit.weights(fit.best)[0]
    assert (0.0, 1.0) == pytest.approx(fit.rates(fit.best), abs=0.02)
    assert [False, True, False] == [value > -1e9 for value in fit.plain]


def test_mixed_runs_rule_it_out() -> None:
    """One pass after the step, and the test is flaky; one failure before it, and the good end fails as well."""
    flaky = Runs({0: [PASS] * 4, 5: [FAIL, PASS, FAIL], 9: [FAIL] * 2})
    assert 0.0 == flaky.weights(flaky.best)[0]
    assert -1e9 == max(flaky.plain)
    both = Runs({0: [PASS] * 9 + [FAIL], 9: [FAIL, FAIL, PASS, FAIL]})
    assert (0.0, 0.0, 1.0) == pytest.approx(both.weights(0))
    assert both.rates(0)[0] < 0.2 < both.rates(0)[1]


def test_passes_of_a_flaky_test_add_up() -> None:
    """Each makes it less likely that the commit is one of the bad ones; a single failure turns that round."""
    probabilities = []
    for count in (1, 2, 4, 8, 16):
        before = mass({0: [PASS] * 9, 5: [PASS] * count, 9: [FAIL, PASS, FAIL, PASS]})
        probabilities.append(sum(before[:6]))
    assert sorted(probabilities, reverse=True) == probabilities
    assert 0.01 > probabilities[-1]
    turned = mass({0: [PASS] * 9, 5: [PASS] * 8 + [FAIL], 9: [FAIL, PASS, FAIL, PASS]})
    assert 0.7 < sum(turned[:6])


def test_swapped_sides_are_unlikely() -> None:
    """Failing before and passing after: the mirror of a regression explains itself a thousand times worse."""
    runs = [[PASS] * 3, [PASS] * 3, [FAIL] * 3, [FAIL] * 3]
    as_it_is, mirrored = (Runs(dict(enumerate(order))).likelihoods[1] for order in (runs, runs[::-1]))
    assert math.log(1000) < as_it_is - mirrored


def test_one_look_at_a_plain_test_tells_its_side() -> None:
    """One bit, while everything is consistent; less where it is flaky, more with more runs."""
    plain = Runs({0: [PASS] * 4, 4: [PASS] * 4, 7: [FAIL] * 4, 9: [FAIL] * 4})
    assert 0.8 < plain.information(1, 0.5, 1)
    flaky = Runs({0: [PASS] * 9, 9: [FAIL, PASS, PASS, PASS, FAIL]})
    bits = [flaky.information(0, 0.5, batch) for batch in (1, 2, 4, 8)]
    assert sorted(bits) == bits
    assert 0.3 > bits[0] > 0.0
    assert 0.0 == pytest.approx(flaky.information(0, 0.0, 4))


def test_the_prior_weights_are_whole() -> None:
    """They sum to one."""
    assert 1.0 == pytest.approx(sum(one.weight for one in HYPOTHESES))
