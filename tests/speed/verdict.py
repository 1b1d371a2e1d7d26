"""`make bench-verdict`: how often each rule that calls a kernel slower is right, on simulated noise.

The tools' rules see what the tools see, one process a side; the sequential rule sees blocks of fresh process
pairs. Not a test: the figures go to VERDICT.md.
"""

import argparse
import datetime
import functools
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loop.bench.machine import machine
from loop.rules import compare
from loop.rules.sequential import MAX_BLOCKS, MIN_BLOCKS, SAME_EVIDENCE, conclude, decide, e_value, needed_evidence
from loop.stats import AGREE, CLIP, CONFIDENCE, NEAR, ratio_interval, t_quantile

Array = NDArray[Any]
SIMULATIONS = 10_000
SLOWDOWNS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
ITERATIONS = 100
"""Of one process: the sample size that criterion takes by itself."""
ITERATION_SD = 0.0133
CHECKED = 25
"""Series a cell on which the vectorised rule has to say what `loop.rules.sequential` says."""
WORDS = ("slower", "faster", "same", "inconclusive")
SLOWER, FASTER, SAME, UNCLEAR = range(4)


@dataclass(frozen=True)
class Calls:
    """What a rule said of each simulation: a word's number, and how many blocks it took."""

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
    found: Array = abs(new.mean(1) - old.mean(1)) > t_quantile(0.975, 2 * count - 2) * error
    return found


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
    """The rule of `loop/rules/sequential.py` for one workload, stopped at the first verdict.

    Some series of every cell also run through that very code, and must agree.
    """
    words_, blocks_ = np.full(len(logs), UNCLEAR), np.full(len(logs), MAX_BLOCKS)
    open_ = np.arange(len(logs))
    for count in range(MIN_BLOCKS, MAX_BLOCKS + 1):
        seen, _ = clip(logs[open_, :count])
        found = evident(seen, slice(count - 1, count))[:, 0]
        clear = found != UNCLEAR
        words_[open_[clear]], blocks_[open_[clear]] = found[clear], count
        open_ = open_[~clear]
    calls = Calls(words_, blocks_)
    check(logs, calls)
    return calls


def clip(values: Array) -> tuple[Array, Array]:
    """`stats.clipped`, a row a series: the values, and how many were not pulled in."""
    middle = np.median(values, axis=1, keepdims=True)
    away = abs(values - middle)
    reach = np.maximum(CLIP * 1.4826 * np.median(away, axis=1, keepdims=True), NEAR)
    within = (away <= reach).sum(1)
    agree = within >= AGREE * values.shape[1]
    pulled = np.clip(values, middle - reach, middle + reach)
    return np.where(agree[:, None], pulled, values), np.where(agree, within, values.shape[1])


def unclipped(logs: Array) -> Calls:
    """The same without pulling outliers in: the rule of `loop` until November 2026."""
    return stop_at_first(evident(logs, slice(None)))


def evident(logs: Array, counts: slice) -> Array:
    """What the e-values say after these counts of blocks."""
    edge, twice = math.log1p(compare.MARGIN), math.log1p(compare.SAME)
    far, near = critical_shares(needed_evidence(1))[counts], critical_shares(SAME_EVIDENCE)[counts]
    slower, faster = share_of_mean(-logs - edge, counts) >= far, share_of_mean(logs - edge, counts) >= far
    same = (share_of_mean(logs + twice, counts) >= near) & (share_of_mean(twice - logs, counts) >= near)
    return words(slower, faster, np.where(same, SAME, UNCLEAR))


def share_of_mean(values: Array, counts: slice) -> Array:
    """n mean^2 / sum of squares with the sign of the mean, after each block: all that the e-value depends on."""
    total, number = values.cumsum(1), np.arange(1, values.shape[1] + 1)
    found: Array = np.sign(total) * total**2 / np.maximum(number * (values**2).cumsum(1), 1e-300)
    return found[:, counts]


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


def stop_at_first(found: Array) -> Calls:
    """The first verdict of each row; the last column where there is none."""
    clear = found != UNCLEAR
    at = np.where(clear.any(1), clear.argmax(1), MAX_BLOCKS - 1)
    return Calls(found[np.arange(len(found)), at], at + 1)


def process_pair(rng: np.random.Generator, slowdown: float, process_sd: float, count: int) -> tuple[Array, Array]:
    """Times of the iterations of one process a side: each process has its own level, which nothing averages."""
    levels = rng.normal(0, process_sd, (2, SIMULATIONS, 1))
    old, new = np.exp(levels + rng.normal(0, ITERATION_SD, (2, SIMULATIONS, count)))
    return old, new * (1 + slowdown)


def blocks(rng: np.random.Generator, slowdown: float, block_sd: float, kind: str) -> Array:
    """Log ratios of blocks; the kinds of noise are those of `KINDS`."""
    size = (SIMULATIONS, MAX_BLOCKS)
    noise = rng.standard_t(3, size) / math.sqrt(3) if kind == "heavy tails" else rng.standard_normal(size)
    if kind == "autocorrelated":
        for number in range(1, MAX_BLOCKS):
            noise[:, number] = LAG_ONE * noise[:, number - 1] + math.sqrt(1 - LAG_ONE**2) * noise[:, number]
    hit = (rng.random(size) < DISTURBED) * rng.choice([-1.0, 1.0], size)
    jump = {"one in five disturbed": rng.exponential(0.3, size), "one in five 12 times": math.log(12)}
    return block_sd * noise + hit * jump.get(kind, 0.0) - math.log1p(slowdown)


KINDS = {
    "": "Normal.",
    "heavy tails": "Student's t with three degrees of freedom, same sd.",
    "one in five disturbed": "One block in five is longer on one side or the other, by 30 % in the mean.",
    "one in five 12 times": "The same, always by a factor of 12.",
    "autocorrelated": "Normal, each block correlated with the one before it by 0.2.",
}
DISTURBED, LAG_ONE = 0.2, 0.2


Rule = tuple[str, Callable[[np.random.Generator, float], Calls]]


def tool(name: str, rule: Callable[[Array, Array], Calls], process_sd: float) -> Rule:
    """A rule on the iterations of one process pair."""
    return name, lambda rng, slowdown: rule(*process_pair(rng, slowdown, process_sd, ITERATIONS))


def check(logs: Array, calls: Calls) -> None:
    """Stop when the vectorised rule and `decide` differ in a verdict or in the block at which it falls."""
    assert calls.blocks is not None
    for row in random.Random(len(logs)).sample(range(len(logs)), CHECKED):
        series = logs[row].tolist()
        count = next((n for n in range(1, MAX_BLOCKS + 1) if decide(series[:n])), MAX_BLOCKS)
        found = (conclude(series[:count]).verdict, count)
        if found != (WORDS[calls.words[row]], calls.blocks[row]):
            sys.exit(f"the vectorised rule is not the rule: {found} in row {row}")


def on_blocks(name: str, rule: Callable[[Array], Calls], block_sd: float, kind: str = "") -> Rule:
    """A rule on blocks of fresh process pairs."""
    title = f"{name}, block sd {block_sd:.2%}{', ' * bool(kind)}{kind}"
    return title, lambda rng, slowdown: rule(blocks(rng, slowdown, block_sd, kind))


TOOLS = {"Welch's t": welch, "Mann-Whitney": mann_whitney, "criterion": criterion, "nvbench": nvbench}
OURS = {"unclipped": unclipped, "**loop**": sequential}
ON_BLOCKS = {"peeking t": peeking_t, **OURS}


def rules(process_sd: float, paired_sd: float) -> list[Rule]:
    """All rules under one noise; blocks with and without what pairing takes away."""
    unpaired = round(process_sd * math.sqrt(2), 3)
    return [
        *(tool(name, rule, process_sd) for name, rule in TOOLS.items()),
        *(on_blocks(name, rule, sd) for name, rule in ON_BLOCKS.items() for sd in (paired_sd, unpaired)),
        *(on_blocks(name, rule, paired_sd, kind) for kind in KINDS if kind for name, rule in OURS.items()),
    ]


def introduction() -> str:
    """What the figures are, what they show, and the model."""
    return f"""\
Figures are per cent of {SIMULATIONS:,} simulated comparisons with a candidate that is truly slower by so much.

**What it shows.** Rules on iterations take the level of a process for a difference, and more iterations only
make them surer. Blocks of fresh pairs alone do not cure it: looking at them until p < 0.05 is wrong in a quarter
of all cases. The sequential rule keeps its word, and the price is blocks: between the margin and twice the margin
it often says `same` (which is true), and noisy blocks leave 2 % open. On a quiet machine criterion and
nvbench are seldom wrong either. Without clipping one disturbed block in five takes nearly every verdict away; with
it the same differences are found, with about twice the blocks. Blocks that are correlated make the rule call a
difference of just the margin beyond it more often than 1 in 1,000.

**The model.** A process has its own level (normal, independent); an iteration scatters about it by
{ITERATION_SD:.2%}. Rules on iterations see {ITERATIONS} of one process a side; a block takes two fresh processes.
The larger block sd is sqrt(2) times that of a process, the same noise as the others have; the smaller is what
pairing leaves of it. Left out: layout, which is part of a binary and so a true difference to every rule here.
On the two-core machine itself identical code gave false alarms of 66 % (t), 52 % (Mann-Whitney) and 16 %
(criterion): the order holds, the digits are the model's.

**Noise of blocks.** {" ".join(f"*{kind}*: {text}" for kind, text in KINDS.items() if kind)}

**The rules.**
"""


NOISES = {
    "A two-core virtual machine: processes differ by 1.2 %": (0.012, 0.008),
    "A quiet machine: processes differ by 0.42 %, the most seen on an H200": (0.0042, 0.0034),
}
"""Standard deviations of a process and of a paired block."""


def descriptions() -> list[str]:
    """The rules in their own words."""
    return [f"- {name}: {' '.join((rule.__doc__ or '').split())}" for name, rule in {**TOOLS, **ON_BLOCKS}.items()]


def share(word: int) -> Callable[[Calls], str]:
    """Per cent of the simulations that ended in a word."""
    return lambda calls: f"{100 * np.mean(calls.words == word):.2f}"


TABLES: dict[str, Callable[[Calls], str]] = {
    "Called slower (false at 0; `loop` claims more than 1 %)": share(SLOWER),
    "Called faster (always false)": share(FASTER),
    "Called the same (`loop` claims less than 2 %)": share(SAME),
    "Inconclusive": share(UNCLEAR),
    "Median blocks": lambda calls: "-" if calls.blocks is None else f"{np.median(calls.blocks):.0f}",
}


def section(title: str) -> list[str]:
    """One noise: a table a word, a row a rule, a column a slowdown."""
    found = {}
    for number, (name, judge) in enumerate(rules(*NOISES[title])):
        noise = name.partition(", ")[2] or str(number)
        found[name] = [judge(np.random.default_rng([*noise.encode(), round(at * 1000)]), at) for at in SLOWDOWNS]
    lines = [f"## {title}", ""]
    for word, cell in TABLES.items():
        lines.append(f"| {word} | {' | '.join(f'{slowdown:.1%}' for slowdown in SLOWDOWNS)} |")
        lines.append("|:--|" + "--:|" * len(SLOWDOWNS))
        lines += [f"| {name} | {' | '.join(map(cell, calls))} |" for name, calls in found.items()]
        lines.append("")
    return lines


def more_iterations() -> list[str]:
    """What measuring longer in the same two processes does to a test on iterations, under the first noise."""
    shares = []
    for count in (25, 100, 1000):
        calls = welch(*process_pair(np.random.default_rng(count), 0.0, 0.012, count))
        shares.append(f"{100 * np.mean(calls.words <= FASTER):.0f} % with {count}")
    return [f"More iterations make it worse: on identical code Welch's t is wrong in {', '.join(shares)}.", ""]


ROUNDS = (5, 9)
AGAINST = (0.0, 0.01, 0.02, 0.05, 0.25)
COMPARISONS = 11
BASELINE_SD = 0.02


def students(logs: Array, level: float) -> Array:
    """Student's t interval of all rounds, as until November 2026: the words."""
    rounds = logs.shape[1]
    half = t_quantile(0.5 + level / 2, rounds - 1) * logs.std(1, ddof=1) / math.sqrt(rounds)
    return interval_words(logs.mean(1) - half, logs.mean(1) + half)


def robust(logs: Array, level: float) -> Array:
    """The interval of `loop.stats.ratio_interval`; some rows also run through that code and must agree."""
    rounds, (values, within) = logs.shape[1], clip(logs)
    quantiles = np.array([t_quantile(0.5 + level / 2, max(count - 1, 1)) for count in range(1, rounds + 1)])
    half = quantiles[within - 1] * values.std(1, ddof=1) * math.sqrt(rounds) / within
    low, high = values.mean(1) - half, values.mean(1) + half
    for row in range(CHECKED):
        _, first, last = ratio_interval(logs[row].tolist(), level)
        if not np.allclose([math.log(first), math.log(last)], [low[row], high[row]]):
            sys.exit(f"the vectorised interval is not the interval in row {row}")
    return interval_words(low, high)


def interval_words(low: Array, high: Array) -> Array:
    """What `compare.judge` says of an interval of log ratios."""
    edge, twice = math.log1p(compare.MARGIN), math.log1p(compare.SAME)
    same = np.where((low > -twice) & (high < twice), SAME, UNCLEAR)
    return words(high < -edge, low > edge, same)


def against_the_baseline() -> list[str]:
    """`measure`: rounds fixed beforehand, one comparison of eleven in a session."""
    level = compare.confidence(COMPARISONS)
    old = (f"t, {CONFIDENCE:.0%} each", lambda logs: students(logs, CONFIDENCE))
    new = ("**loop**", lambda logs: robust(logs, level))
    lines = [
        "## Against the baseline: rounds fixed beforehand",
        "",
        f"Per cent called slower on one workload of {COMPARISONS}; rounds scatter by {BASELINE_SD:.0%}.",
        "*Session false*: sessions with a false verdict on any of the workloads, when all are slower by",
        "so much: a difference at 0 and 1 %, `same` at 2 %.",
        "",
        f"| Slower by | {' | '.join(f'{at:.0%}' for at in AGAINST)} | session false at 0 % | at 1 % | at 2 % |",
        "|:--|" + "--:|" * (len(AGAINST) + 3),
    ]
    for rounds in ROUNDS:
        for kind in list(KINDS)[:4]:
            for name, rule in (old, new):
                seeds = [[*kind.encode(), rounds, round(at * 1000)] for at in AGAINST]
                drawn = [
                    blocks(np.random.default_rng(seed), at, BASELINE_SD, kind)[:, :rounds]
                    for seed, at in zip(seeds, AGAINST, strict=True)
                ]
                found = [rule(logs) for logs in drawn]
                shares = [f"{100 * np.mean(one == SLOWER):.1f}" for one in found]
                wrong = [np.mean(found[0] <= FASTER), np.mean(found[1] <= FASTER), np.mean(found[2] == SAME)]
                session = [f"{100 * (1 - (1 - share) ** COMPARISONS):.2f}" for share in wrong]
                title = f"{name}, {rounds} rounds{', ' * bool(kind)}{kind}"
                lines.append(f"| {title} | {' | '.join([*shares, *session])} |")
    return [*lines, ""]


def main() -> None:
    """Simulate everything, and replace VERDICT.md."""
    global SIMULATIONS
    parser = argparse.ArgumentParser(prog="python -m tests.speed.verdict")
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    SIMULATIONS = parser.parse_args().simulations
    begun, facts = time.perf_counter(), machine()
    today = datetime.datetime.now(datetime.UTC).date()
    body = [line for title in NOISES for line in section(title)] + against_the_baseline() + more_iterations()
    seconds = time.perf_counter() - begun
    made = (
        f"By `make bench-verdict` on {today} in {seconds:.0f} s, seeded: {facts.processor}, {facts.cores} cores, "
    )
    made += f"{facts.system}, Python {facts.python}, numpy {np.__version__}."
    lines = ["# Operating curves, simulated", "", made, "", *introduction().splitlines(), "", *descriptions(), ""]
    (Path(__file__).parent / "VERDICT.md").write_text("\n".join([*lines, *body]).rstrip() + "\n")


if __name__ == "__main__":
    main()
