"""Other rules for finding a commit under noise, on the same simulated histories: for `tests/speed/bisect.py`."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loop.bisect.bisection import next_move
from loop.bisect.model import Asked, Try
from tests.bisect.simulated import History, problem

Array = NDArray[Any]
SURE = 0.99
"""Posterior at which pass/fail Bayes names its commit."""
MOST = 5000
"""Measurements after which a rule gives up."""
ATTEMPTS, ATTEMPTS_MOST = 10, 160
"""Pinpoint's first measurements of a commit, and its last ones here."""
LOW, SHIFT = 0.01, 1.349
"""Pinpoint: below this p value commits differ; the shift it looks for is one interquartile range, in sd."""


@dataclass(frozen=True)
class Named:
    """What a rule says: a commit, or None, and what it took."""

    commit: int | None
    measured: int
    builds: int


Rival = Callable[[History], Named]


def verified(history: History) -> dict[int, list[float]]:
    """Observations of both ends, until they differ as the search wants it."""
    asked, journal = problem(history.last), list[Asked]()
    step = next_move(asked, journal)
    while isinstance(step, Try) and step.why.startswith("end:"):
        journal.append(Asked(step, history.observe(step)))
        step = next_move(asked, journal)
    values: dict[int, list[float]] = {0: [], history.last: []}
    for one in journal:
        assert isinstance(one.outcome, list)
        values[one.asked.commit].extend(one.outcome)
    return values


def mean_of(count: int, history: History) -> Named:
    """Bisection on the mean of so many measurements of each commit, against the middle of both ends."""
    ends = verified(history)
    middle, measured = fmean(map(fmean, ends.values())), sum(map(len, ends.values()))
    low, high, builds = 0, history.last, 2
    while high - low > 1:
        at = (low + high) // 2
        slow = fmean(history.single(at) for _ in range(count)) > middle
        low, high = (low, at) if slow else (at, high)
        measured, builds = measured + count, builds + 1
    return Named(high, measured, builds)


def plain(history: History) -> Named:
    """`git bisect` with one measurement a commit, against the middle of both ends."""
    return mean_of(1, history)


def pass_fail_bayes(history: History) -> Named:
    """The core of `git_bayesect`, with its priors: slower than the middle of both ends is a failure, the commit is
    the one that lowers the entropy most; until one has 0.99."""
    ends = verified(history)
    middle, last = fmean(map(fmean, ends.values())), history.last
    failed, seen = np.zeros(last + 1), np.zeros(last + 1)
    for end, values in ends.items():
        failed[end], seen[end] = sum(value > middle for value in values), len(values)
    tried = {0, last}
    while (measured := int(seen.sum())) < MOST:
        mass, rates = _beta_posterior(failed, seen)
        best = int(mass.argmax())
        if mass[best] >= SURE:
            return Named(best + 1, measured, len(tried))
        at = _most_telling(mass, rates)
        failed[at] += history.single(at) > middle
        seen[at] += 1
        tried.add(at)
    return Named(None, measured, len(tried))


def _beta_posterior(failed: Array, seen: Array) -> tuple[Array, tuple[Array, Array]]:
    """Probability of a step after each commit but the last, and the failure rates of both sides for each."""
    all_failed, all_seen = failed.cumsum()[:-1], seen.cumsum()[:-1]
    after_failed, after_seen = failed.sum() - all_failed, seen.sum() - all_seen
    before = _log_beta(0.05 + all_failed, 0.95 + all_seen - all_failed)
    logs = before + _log_beta(0.9 + after_failed, 0.1 + after_seen - after_failed)
    mass = np.exp(logs - logs.max())
    rates = ((0.05 + all_failed) / (1 + all_seen), (0.9 + after_failed) / (1 + after_seen))
    return mass / mass.sum(), rates


@functools.cache
def _log_gammas(offset: float) -> Array:
    """log Gamma(offset + n) for n = 0, 1, ..."""
    return np.array([math.lgamma(offset + n) for n in range(MOST + 2)])


def _log_beta(a: Array, b: Array) -> Array:
    """log B of whole numbers above 0.05, 0.95, 0.9 or 0.1."""
    parts = [_log_gammas(round(float(x.flat[0] % 1), 2) or 1.0)[x.astype(int)] for x in (a, b)]
    whole = (a + b).round().astype(int)
    found: Array = parts[0] + parts[1] - _log_gammas(1.0)[whole - 1]
    return found


def _most_telling(mass: Array, rates: tuple[Array, Array]) -> int:
    """The commit between the ends whose next result is expected to leave the least entropy."""
    inside = np.arange(1, len(mass))
    expected = np.zeros(len(inside))
    for fails in (True, False):
        before, after = (rate if fails else 1 - rate for rate in rates)
        low, high = mass * before, mass * after
        total = high.cumsum()[inside - 1] + (low.sum() - low.cumsum()[inside - 1])
        logs = _plogp(high).cumsum()[inside - 1] + (_plogp(low).sum() - _plogp(low).cumsum()[inside - 1])
        expected += total * np.log2(np.maximum(total, 1e-300)) - logs
    return int(inside[expected.argmin()])


def _plogp(values: Array) -> Array:
    found: Array = values * np.log2(np.maximum(values, 1e-300))
    return found


def pinpoint(history: History) -> Named:
    """Chromium's Pinpoint: ten measurements a commit, neighbours compared by the lower p of Mann-Whitney's and of
    Kolmogorov-Smirnov's test; half-way on where they differ (p < 0.01), more where p is not high enough either."""
    values = {at: [history.single(at) for _ in range(ATTEMPTS)] for at in (0, history.last)}
    while sum(map(len, values.values())) < MOST:
        todo = _next(values)
        if isinstance(todo, Named):
            return todo
        for at in todo:
            values.setdefault(at, []).extend(history.single(at) for _ in range(ATTEMPTS))
    return Named(None, sum(map(len, values.values())), len(values))


def _next(values: dict[int, list[float]]) -> tuple[int, ...] | Named:
    """Commits to measure; or what is found once all neighbours are the same, or next to each other."""
    places, found = sorted(values), []
    for low, high in pairwise(places):
        word = _compared(values[low], values[high])
        if word == "different" and high - low > 1:
            return ((low + high) // 2,)
        if word == "different":
            found.append(high)
        elif word == "unknown":
            return tuple(at for at in (low, high) if len(values[at]) <= min(len(values[low]), len(values[high])))
    culprit = found[0] if len(found) == 1 else None
    return Named(culprit, sum(map(len, values.values())), len(values))


def _compared(low: list[float], high: list[float]) -> str:
    count = min(len(low), len(high))
    p = _p_value(np.array([low[:count]]), np.array([high[:count]]))[0]
    if p <= LOW:
        return "different"
    return "same" if count >= ATTEMPTS_MOST or p > _high_threshold(count) else "unknown"


@functools.cache
def _high_threshold(count: int) -> float:
    """The p value that a shift of one interquartile range stays below in 99 of 100 cases."""
    rng = np.random.default_rng(count)
    size = (1000, count)
    return float(np.quantile(_p_value(rng.standard_normal(size), SHIFT + rng.standard_normal(size)), 0.99))


def _p_value(low: Array, high: Array) -> Array:
    """The lower of both tests' two-sided p values, one a row; normal and asymptotic."""
    count = low.shape[1]
    order = np.concatenate([low, high], axis=1).argsort(1)
    ranks = order.argsort(1)[:, count:] + 1
    wins = ranks.sum(1) - count * (count + 1) / 2
    z = np.abs(wins - count * count / 2) / math.sqrt(count * count * (2 * count + 1) / 12)
    of_ranks = np.array([math.erfc(value / math.sqrt(2)) for value in z])
    apart = np.abs(np.where(order < count, 1, -1).cumsum(1)).max(1) / count
    scaled = apart * (math.sqrt(count / 2) + 0.12 + 0.11 / math.sqrt(count / 2))
    terms = [2 * (-1) ** (k - 1) * np.exp(-2 * k * k * scaled**2) for k in range(1, 20)]
    found: Array = np.minimum(of_ranks, np.clip(sum(terms), 0, 1))
    return found
