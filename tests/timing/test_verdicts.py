"""The sequential rule: its evidence agrees with the formula, and few verdicts are false."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loop.timing.verdicts import MARGIN, MAX_BLOCKS, MIN_BLOCKS, by_evidence, e_value, needed_evidence

EDGE = math.log1p(MARGIN)
SAMPLES = ((2, 0.5), (3, -1.0), (8, 0.0), (8, 1.0), (8, 4.0), (20, 0.7), (20, -0.7), (60, 0.3))
"""Counts of blocks, and the effect (mean in units of the spread) they come from."""


def make_logs(count: int, mean: float, spread: float, seed: int = 1) -> list[float]:
    """Log ratios of blocks, normal."""
    rng = random.Random(f"{count} {mean} {spread} {seed}")
    return [rng.gauss(mean, spread) for _ in range(count)]


def around(mean: float, spread: float, count: int) -> list[float]:
    """An even count of log ratios, half of them above the mean and half below."""
    return [mean + spread, mean - spread] * (count // 2)


def integrated(logs: Sequence[float]) -> float:
    """The Bayes factor by definition: likelihoods integrated over sigma (prior 1/sigma) and effect > 0."""
    values = np.array(logs)
    mean, squares = values.mean(), ((values - values.mean()) ** 2).sum()
    sigma = np.exp(np.linspace(math.log(values.std()) - 5, math.log(values.std()) + 12, 1500))
    width = 9 / 1500
    effect = (np.arange(1500) + 0.5) * width

    def likelihood(of_effect: NDArray[Any]) -> NDArray[Any]:
        misfit = squares + len(values) * (mean - of_effect * sigma[:, None]) ** 2
        logs_of_sigma = np.log(sigma / values.std())[:, None]
        return np.exp(-len(values) * logs_of_sigma - misfit / (2 * sigma[:, None] ** 2))

    prior = 2 * np.exp(-(effect**2) / 2) / math.sqrt(2 * math.pi)
    return float((likelihood(effect) * prior).sum() * width / likelihood(np.zeros(1)).sum())


def first_decision(logs: Iterator[float]) -> tuple[str, int]:
    """The first verdict if one looks after every block, and the count of blocks."""
    blocks: list[float] = []
    for value in logs:
        blocks.append(value)
        if (verdict := by_evidence(blocks).verdict) != "inconclusive":
            break
    return verdict, len(blocks)


def first_decisions(series: int, slowdown: float, spread: float) -> list[tuple[str, int]]:
    """First decisions on simulated series, seeded."""
    rng = random.Random(f"{series} {slowdown} {spread}")
    mean = -math.log1p(slowdown)
    return [first_decision(rng.gauss(mean, spread) for _ in range(MAX_BLOCKS)) for _ in range(series)]


@pytest.mark.parametrize(("bound", "blocks"), [(72, 5), (1024, 7), (4374, 8)])
def test_few_blocks_bound_the_evidence(bound: float, blocks: int) -> None:
    """The limit is 2 (1 + n)^((n-1)/2); identical values come close to it."""
    for spread in (1.0, 1e-3, 1e-9, 0.0):
        logs = [1 + spread, 1 - spread] * (blocks // 2) + [1.0] * (blocks % 2)
        assert bound > e_value(logs, 0.0)
    assert bound == pytest.approx(e_value([1.0] * blocks, 0.0), rel=0.005)


@pytest.mark.parametrize(("count", "effect"), SAMPLES)
def test_the_evidence_is_the_integral_that_defines_it(count: int, effect: float) -> None:
    """Against a numerical integration over sigma and the effect, which knows no Student's t."""
    logs = make_logs(count, effect, 1.0)
    assert integrated(logs) == pytest.approx(e_value(logs, 0.0), rel=5e-4)


@pytest.mark.parametrize("value", [0.0, 1e-300, -1e-300, 0.01, -5.0, 1e300, -1e300])
@pytest.mark.parametrize("spread", [0.0, 1e-300, 1e-17, 1.0, 1e300])
def test_no_series_gives_anything_but_a_number(value: float, spread: float) -> None:
    """Nothing is NaN or infinite, even if squares underflow, cancel or overflow."""
    for count in (2, 8, 60, 400):
        logs = around(value, spread, count)
        assert math.isfinite(e_value(logs, EDGE))
        assert e_value(logs, EDGE) >= 0
        assert math.isfinite(by_evidence(logs).e_value)


def test_needed_evidence_grows_with_workloads_and_candidates() -> None:
    """One false in 1,000 a workload, in 100 a session, and in one campaign of 20."""
    assert [1000, 1000, 1100, 4000] == [needed_evidence(workloads) for workloads in (1, 10, 11, 40)]
    assert [1000, 1120, 32_800, 65_600] == [needed_evidence(w, k) for w, k in ((1, 1), (1, 7), (1, 40), (2, 40))]
    assert sum(1 / needed_evidence(1, k) for k in range(1, 10_000)) <= 0.05


@pytest.mark.parametrize(
    ("expected", "mean", "spread"),
    [
        ("faster", 0.05, 0.005),
        ("faster", 0.5, 0.03),
        ("slower", -0.05, 0.005),
        ("slower", -0.5, 0.03),
        ("same", 0.0, 0.003),
        ("same", 0.005, 0.003),
        ("inconclusive", 0.0, 0.02),
        ("inconclusive", 0.02, 0.02),
        ("inconclusive", EDGE, 0.01),
        ("inconclusive", -EDGE, 0.01),
    ],
)
def test_the_word_follows_from_mean_and_scatter(expected: str, mean: float, spread: float) -> None:
    """Ten blocks: beyond 1 %, within 2 %, or not clear."""
    assert expected == by_evidence(around(mean, spread, 10)).verdict


@pytest.mark.parametrize(
    ("expected", "mean", "spread"),
    [
        ("same", 0.0, 0.02),
        ("inconclusive", -0.02, 0.02),  # Likelier than not slower by more than 1 %.
        ("slower", -0.05, 0.005),
    ],
)
def test_within_five_per_cent_the_same_is_decided_sooner(expected: str, mean: float, spread: float) -> None:
    """But nothing is called the same that looks slower."""
    assert expected == by_evidence(around(mean, spread, 8), same_within=0.05).verdict


@pytest.mark.parametrize(("same_within", "expected"), [(0.05, "same"), (0.02, "inconclusive")])
def test_six_quiet_blocks_are_the_same_within_five_per_cent_only(same_within: float, expected: str) -> None:
    assert expected == by_evidence(around(0.0, 0.001, 6), same_within=same_within).verdict
    assert "inconclusive" == by_evidence(around(0.0, 0.001, 4), same_within=same_within).verdict
    of_campaign = by_evidence(around(0.0, 0.001, 6), candidate_number=1, same_within=same_within)
    assert "inconclusive" == of_campaign.verdict  # `lacks_null_control` waits for MIN_BLOCKS.


def test_where_a_third_of_the_blocks_disagrees_nothing_is_clear() -> None:
    """The reason names the scatter."""
    decision = by_evidence([2.5, 2.49, 2.51, 2.5, 2.5, 0.0, 0.001, -0.001])
    assert "inconclusive" == decision.verdict
    assert decision.reason.startswith("too noisy to judge: blocks differ by 129.")


def test_the_same_kernel_twice_is_same_however_often_one_looks() -> None:
    """No true difference, a look after every block: never faster or slower, and soon `same`."""
    decisions = first_decisions(300, 0.0, 0.008)
    assert {"same"} == {verdict for verdict, _ in decisions}
    assert MIN_BLOCKS <= sorted(blocks for _, blocks in decisions)[150] <= 12


@pytest.mark.slow
def test_a_difference_of_just_the_margin_is_not_called_one() -> None:
    """For the hardest null hypothesis: at most one false in a thousand; here none in 200."""
    assert {"slower", "faster"}.isdisjoint(verdict for verdict, _ in first_decisions(200, MARGIN, 0.008))


@pytest.mark.parametrize("outlier", [2.5, -2.5, 1e6])
@pytest.mark.parametrize("every", [5, 6, 9])
def test_one_block_in_five_takes_no_verdict_away(outlier: float, every: int) -> None:
    """A disturbed block of any size and side leaves the verdict of the others."""
    for mean, expected in ((0.0, "same"), (0.05, "faster"), (-0.22, "slower")):
        logs = make_logs(40, mean, 0.006)
        logs[::every] = [outlier] * len(logs[::every])
        assert expected == by_evidence(logs).verdict


def test_a_fifth_of_blocks_disturbed_at_random_gives_no_false_verdict() -> None:
    """With a look after every block: no false verdict in 300 series, and nearly all have an answer."""
    rng, words = random.Random(11), []
    for _ in range(300):
        logs = [
            rng.gauss(0, 0.008) + (rng.random() < 0.2) * rng.choice([-1, 1]) * rng.expovariate(3)
            for _ in range(60)
        ]
        words.append(first_decision(iter(logs))[0])
    assert {"slower", "faster"}.isdisjoint(words)
    assert 0.97 * 300 <= words.count("same")


def test_what_blocks_share_moves_the_margin() -> None:
    """The limit is the margin plus three standard deviations of kept processes."""
    allowed = 3 * 0.005
    assert ["slower", "inconclusive"] == [by_evidence([-0.02] * 12, 1, a).verdict for a in (0.0, allowed)]
    assert ["slower", "slower"] == [by_evidence([-0.04] * 12, 1, a).verdict for a in (0.0, allowed)]
    ratios = around(0.008, 0.001, 12)
    assert ["same", "inconclusive"] == [by_evidence(ratios, 1, a).verdict for a in (0.0, allowed)]
