"""The rules that `make bench-verdict` compares, each for many simulations at once."""

import functools
import math
import random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loop.base.stats import CLIP_DEVIATIONS, MIN_SHARE_WITHIN, NEVER_OUTLIER, t_quantile
from loop.timing import verdicts
from loop.timing.verdicts import MAX_BLOCKS, MIN_BLOCKS, SAME_EVIDENCE, by_evidence, e_value, needed_evidence

Array = NDArray[Any]
CHECKED = 25  # Series of each cell on which the vectorised rule must agree with `loop.timing.verdicts`.
ITERATIONS = 100  # Of one process: the sample size that criterion takes by itself.
WORDS = ("slower", "faster", "same", "inconclusive")
SLOWER, FASTER, SAME, UNCLEAR = range(4)


@dataclass(frozen=True)
class Calls:
    """A rule's verdict on each simulation (an index of WORDS), and the count of its blocks."""

    words: Array
    blocks: Array | None = None


def words(slower: Array, faster: Array, otherwise: int | Array) -> Array:
    """The number of a word for every simulation."""
    return np.where(slower, SLOWER, np.where(faster, FASTER, otherwise))


# The rules of others: `old` and `new` are times of iterations, one row a simulation.


def welch(old: Array, new: Array) -> Calls:
    """Welch's t test on iterations, two-sided, p < 0.05 (Welch 1947)."""
    different = differ(old, new)
    rise = new.mean(1) > old.mean(1)
    return Calls(words(different & rise, different & ~rise, UNCLEAR))


def differ(old: Array, new: Array) -> Array:
    """Whether p < 0.05; with the degrees of freedom of sides that scatter alike, as they do here."""
    count = old.shape[1]
    error = np.sqrt((old.var(1, ddof=1) + new.var(1, ddof=1)) / count)
    return abs(new.mean(1) - old.mean(1)) > t_quantile(0.975, 2 * count - 2) * error


def mann_whitney(old: Array, new: Array) -> Calls:
    """Mann-Whitney's U on iterations, two-sided, p < 0.002 (Mann and Whitney 1947; normal approximation)."""
    count = old.shape[1]
    ranks = np.concatenate([old, new], axis=1).argsort(1).argsort(1)[:, count:] + 1
    wins = ranks.sum(1) - count * (count + 1) / 2
    z = (wins - count * count / 2) / math.sqrt(count * count * (2 * count + 1) / 12)
    return Calls(words(z > 3.0902, z < -3.0902, UNCLEAR))


def criterion(old: Array, new: Array) -> Calls:
    """t test p < 0.05, and the 95 % bootstrap interval of the change of means beyond 1 % noise; else `same`.

    criterion.rs, `src/analysis/compare.rs` and `src/report.rs`, at its defaults; here with 1,000 resamples, and
    Welch's t for its bootstrapped one.
    """
    rng, even = np.random.default_rng(20), np.full(ITERATIONS, 1 / ITERATIONS)
    of_old, of_new = (rng.multinomial(ITERATIONS, even, 1000).T / ITERATIONS for _ in range(2))
    low, high = np.quantile((new @ of_new) / (old @ of_old) - 1, (0.025, 0.975), axis=1)
    different = differ(old, new)
    return Calls(words(different & (low > 0.01), different & (high < -0.01), SAME))


def nvbench(old: Array, new: Array) -> Calls:
    """The means differ by more than the smaller relative standard deviation of iterations; else `same`.

    NVBench, `python/scripts/nvbench_compare_legacy.py`; its newer script has other rules.
    """
    change = new.mean(1) / old.mean(1) - 1
    noise = np.minimum(old.std(1, ddof=1) / old.mean(1), new.std(1, ddof=1) / new.mean(1))
    return Calls(words(change > noise, change < -noise, SAME))


# Rules on blocks: `logs` are log ratios, one row a simulation, one column a block.


def sequential(logs: Array) -> Calls:
    """The rule of `loop/timing/verdicts.py` for one workload, stopped at the first verdict.

    Some series of every cell also run through that very code, and must agree.
    """
    words_, blocks_ = np.full(len(logs), UNCLEAR), np.full(len(logs), MAX_BLOCKS)
    open_ = np.arange(len(logs))
    for count in range(MIN_BLOCKS, MAX_BLOCKS + 1):
        clipped, _ = clip(logs[open_, :count])
        called = evident(clipped, slice(count - 1, count))[:, 0]
        clear = called != UNCLEAR
        words_[open_[clear]], blocks_[open_[clear]] = called[clear], count
        open_ = open_[~clear]
    calls = Calls(words_, blocks_)
    check(logs, calls)
    return calls


def check(logs: Array, calls: Calls) -> None:
    """Stop when the vectorised rule and `decide` differ in a verdict or in the block at which it falls."""
    assert calls.blocks is not None
    for row in random.Random(len(logs)).sample(range(len(logs)), CHECKED):
        series = logs[row].tolist()
        verdicts = [by_evidence(series[:count]).verdict for count in range(1, MAX_BLOCKS + 1)]
        count = next((n for n, verdict in enumerate(verdicts, 1) if verdict != "inconclusive"), MAX_BLOCKS)
        expected = (verdicts[count - 1], count)
        if expected != (WORDS[calls.words[row]], calls.blocks[row]):
            sys.exit(f"the vectorised rule is not the rule: {expected} in row {row}")


def clip(values: Array) -> tuple[Array, Array]:
    """`stats.winsorised`, a row a series: the values, and how many were not pulled in."""
    middle = np.median(values, axis=1, keepdims=True)
    away = abs(values - middle)
    reach = np.maximum(CLIP_DEVIATIONS * 1.4826 * np.median(away, axis=1, keepdims=True), NEVER_OUTLIER)
    within = (away <= reach).sum(1)
    agree = within >= MIN_SHARE_WITHIN * values.shape[1]
    pulled = np.clip(values, middle - reach, middle + reach)
    return np.where(agree[:, None], pulled, values), np.where(agree, within, values.shape[1])


def unclipped(logs: Array) -> Calls:
    """The same without pulling outliers in: the rule of `loop` until November 2026."""
    return stop_at_first(evident(logs, slice(None)))


def evident(logs: Array, counts: slice) -> Array:
    """What the e-values say after these counts of blocks."""
    edge, twice = math.log1p(verdicts.MARGIN), math.log1p(verdicts.SAME_MARGIN)
    far, near = critical_shares(needed_evidence(1))[counts], critical_shares(SAME_EVIDENCE)[counts]
    slower, faster = share_of_mean(-logs - edge, counts) >= far, share_of_mean(logs - edge, counts) >= far
    same = (share_of_mean(logs + twice, counts) >= near) & (share_of_mean(twice - logs, counts) >= near)
    return words(slower, faster, np.where(same, SAME, UNCLEAR))


def share_of_mean(values: Array, counts: slice) -> Array:
    """n mean^2 / sum of squares with the sign of the mean, after each block: all that the e-value depends on."""
    total, number = values.cumsum(1), np.arange(1, values.shape[1] + 1)
    shares: Array = np.sign(total) * total**2 / np.maximum(number * (values**2).cumsum(1), 1e-300)
    return shares[:, counts]


@functools.cache
def critical_shares(needed: float) -> Array:
    """For each count of blocks the share at which `e_value` reaches `needed`: it rises with the share."""
    return np.array([critical_share(count, needed) for count in range(1, MAX_BLOCKS + 1)])


def critical_share(count: int, needed: float) -> float:
    """By bisection; above 1, which no data reach, where there is no such share."""
    low, high = 0.0, 1.0
    if count < MIN_BLOCKS or e_value([1.0] * count, 0.0) < needed:
        return 2.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        spread = math.sqrt(count * (1 / middle - 1) / (count - count % 2))
        logs = [1 + spread, 1 - spread] * (count // 2) + [1.0] * (count % 2)
        low, high = (low, middle) if e_value(logs, 0.0) >= needed else (middle, high)
    return high


def peeking_t(logs: Array) -> Calls:
    """A t test at p < 0.05 after every block from the eighth on, stopped at its first success."""
    count = np.arange(1, MAX_BLOCKS + 1)
    mean = logs.cumsum(1) / count
    spread = np.sqrt(np.maximum((logs**2).cumsum(1) - count * mean**2, 1e-300) / np.maximum(count - 1, 1))
    limits = [t_quantile(0.975, n - 1) if n >= MIN_BLOCKS else math.inf for n in count.tolist()]
    t = mean / spread * np.sqrt(count)
    return stop_at_first(words(t < -np.array(limits), t > np.array(limits), UNCLEAR))


def stop_at_first(called: Array) -> Calls:
    """The first verdict of each row; the last column where there is none."""
    clear = called != UNCLEAR
    at = np.where(clear.any(1), clear.argmax(1), MAX_BLOCKS - 1)
    return Calls(called[np.arange(len(called)), at], at + 1)
