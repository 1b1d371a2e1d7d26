"""Fresh evidence: the sequential rule's where nothing is special, and rarely high where there is no step."""

import itertools
import math
import random

import numpy as np
import pytest

from loop.bisect.confirming import (
    FUTILE,
    MOST_PAIRS,
    MOST_RUNS,
    NEEDED,
    e_value,
    most_pairs,
    pairs_say,
    runs_evidence,
    runs_say,
)
from loop.timing import verdicts
from tests.bisect.simulated import claim


def make_logs(count: int, mean: float, spread: float, seed: int = 1) -> list[float]:
    """Log ratios of pairs."""
    rng = random.Random(f"{count} {mean} {spread} {seed}")
    return [rng.gauss(mean, spread) for _ in range(count)]


@pytest.mark.parametrize(("count", "mean"), [(1, 0.3), (2, 0.5), (5, -1.0), (8, 0.0), (8, 4.0), (40, 0.4)])
def test_of_one_layout_it_is_the_sequential_rule(count: int, mean: float) -> None:
    """Nothing between relinks, prior variance 1: the same evidence."""
    logs = make_logs(count, mean, 1.0)
    for above in (0.0, 0.2):
        assert verdicts.e_value(logs, above) == pytest.approx(e_value({0: logs}, above))


@pytest.mark.parametrize("ratio", [0.3, 2.0])
@pytest.mark.parametrize("variance", [1.0, 9.0])
def test_with_layouts_it_is_the_integral_that_defines_it(ratio: float, variance: float) -> None:
    """The likelihoods of correlated pairs, integrated over sigma (prior 1 / sigma) and an effect above 0."""
    links = {0: make_logs(3, 1.0, 1.0), 1: make_logs(2, 0.4, 1.0), 2: make_logs(1, 1.5, 1.0)}
    values = np.concatenate([np.array(one) for one in links.values()])
    sizes = [len(one) for one in links.values()]
    blocks = np.zeros((len(values), len(values)))
    for start, size in zip(itertools.accumulate([0, *sizes[:-1]]), sizes, strict=True):
        blocks[start : start + size, start : start + size] = ratio
    inverse = np.linalg.inv(np.eye(len(values)) + blocks)
    effects = (np.arange(4000) + 0.5) * 30 / 4000
    above = below = 0.0
    for sigma in np.exp(np.linspace(-5, 5, 401)):
        rest = values[None, :] - sigma * effects[:, None]
        misfits = np.einsum("ij,jk,ik->i", rest, inverse, rest)
        prior = 2 * np.exp(-(effects**2) / 2 / variance) / math.sqrt(2 * math.pi * variance) * 30 / 4000
        above += float((np.exp(-misfits / 2 / sigma**2) * prior).sum() * sigma ** -len(values))
        below += float(np.exp(-values @ inverse @ values / 2 / sigma**2) * sigma ** -len(values))
    assert above / below == pytest.approx(e_value(links, 0.0, ratio, variance), rel=2e-3)


def test_many_pairs_of_one_layout_are_not_many_layouts() -> None:
    """One binary is one sample of its layout: forty pairs of it do not blame, six layouts do."""
    one = {1: make_logs(40, 0.02, 0.003)}
    six = {link: make_logs(4, 0.02, 0.003, link) for link in range(1, 7)}
    ratio = 2 * 0.01**2 / 0.003**2
    assert 10 > e_value(one, 0.0, ratio)
    assert e_value(six, 0.0, ratio, 9.0) > e_value(one, 0.0, ratio, 9.0)


def test_four_pairs_can_confirm_what_is_very_clear() -> None:
    """With a prior that expects it; with that of the sequential rule six would be needed."""
    logs = [0.26, 0.27, 0.25, 0.26]
    assert NEEDED > e_value({0: logs}, 0.04)
    assert NEEDED < e_value({0: logs}, 0.04, variance=50.0)


def test_an_outlier_does_not_undo_a_confirmation() -> None:
    """Clipped it counts for no more than the clearest pair that is expected."""
    logs = [*make_logs(20, 0.1, 0.02), -1.5]
    assert NEEDED > e_value({0: logs}, 0.0)
    assert NEEDED < e_value({0: logs}, 0.0, clip=0.2)


def test_no_value_is_no_evidence() -> None:
    """Nothing yet, or nothing but zeros, which speak against."""
    assert 1.0 == e_value({}, 0.0)
    assert 1.0 == e_value({0: []}, 0.0)
    assert 1.0 > e_value({0: [0.0] * 5}, 0.0) > 0.0


@pytest.mark.parametrize("variance", [1.0, 40.0])
@pytest.mark.slow
def test_without_a_step_confirmations_are_rare_however_often_one_looks(variance: float) -> None:
    """At most one in a hundred; here of 400 series, looked at after each pair."""
    confirmed = 0
    for seed in range(400):
        logs = make_logs(30, 0.0, 0.02, seed)
        confirmed += any(e_value({0: logs[:n]}, 0.0, variance=variance) >= NEEDED for n in range(4, 31))
    assert 8 >= confirmed


def test_pairs_confirm_deny_or_go_on() -> None:
    """A step is confirmed, none is denied in good time, and what stays unclear ends at the limit."""
    asked = claim(above=0.01, below=0.03, clip=1.0)
    assert "confirmed" == pairs_say({0: make_logs(20, 0.06, 0.02)}, asked)[0]
    assert "failed" == pairs_say({0: make_logs(40, 0.0, 0.02)}, asked)[0]
    assert "open" == pairs_say({0: make_logs(6, 0.02, 0.03)}, asked)[0]
    unclear = make_logs(3 * MOST_PAIRS, 0.02, 0.06)
    assert "failed" == pairs_say({0: unclear}, claim(above=0.015, below=0.02))[0]
    assert FUTILE > 1


def test_noisy_pairs_may_be_more() -> None:
    """Sixty; more where the step is lost in the noise of a pair, as many as show it."""
    quiet, noisy = make_logs(20, 0.1, 0.05), make_logs(20, 0.1, 0.5)
    assert MOST_PAIRS == most_pairs({0: quiet}, 0.05)
    assert 40 * 25 / 2 < most_pairs({0: noisy}, 0.05) < 40 * 25 * 2
    assert [MOST_PAIRS] * 2 == [most_pairs({0: [0.1]}, 0.05), most_pairs({0: noisy}, 0.0)]


def test_runs_that_share_a_rate_give_no_evidence_in_the_mean() -> None:
    """Exactly: over all outcomes of two blocks, for every common rate and every expectation."""
    for rate, expected in itertools.product(
        (0.0, 0.05, 0.3, 0.5, 0.9, 1.0), ((0.9, 0.05), (0.5, 0.4), (0.2, 0.0))
    ):
        mean = 0.0
        for outcome in itertools.product((0.0, 1.0), repeat=4):
            chance = math.prod(1 - rate if passed else rate for passed in outcome)
            mean += chance * runs_evidence(outcome[:2], outcome[2:], expected)[1]
        assert mean <= 1 + 1e-12


def test_runs_that_always_differ_confirm_in_four_blocks() -> None:
    """A test that fails always from a commit on."""
    word, evidence = runs_say([0.0] * 4, [1.0] * 4, claim(rates=(1.0, 0.0)))  # type: ignore[arg-type]
    assert ("confirmed", True) == (word, evidence > NEEDED)
    assert "open" == runs_say([0.0] * 3, [1.0] * 3, claim(rates=(1.0, 0.0)))[0]  # type: ignore[arg-type]


def test_runs_the_wrong_way_round_deny_or_say_nothing() -> None:
    """A culprit that passes more often than its parent is none."""
    assert "failed" == runs_say([1.0] * 9, [0.0] * 9, claim(rates=(0.9, 0.05)))[0]  # type: ignore[arg-type]
    assert (1.0, 1.0) == runs_evidence([0.0, 1.0], [1.0, 1.0], (0.1, 0.6))
    same = [1.0, 0.0] * (MOST_RUNS // 4)
    assert "failed" == runs_say(same, same, claim(rates=(0.5, 0.45)))[0]  # type: ignore[arg-type]


def test_the_highest_evidence_counts() -> None:
    """Where it was once enough it stays so: that is what stopping whenever one likes means."""
    highest, last = runs_evidence([0.0] * 6 + [1.0] * 6, [1.0] * 12, (1.0, 0.0))
    assert highest > NEEDED > last
