"""`make bench-verdict`: how often each rule that calls a kernel slower is right, on simulated noise.

The tools' rules see what the tools see, one process a side; the sequential rule sees blocks of fresh process
pairs. Not a test: the figures go to VERDICT.md.
"""

import argparse
import datetime
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from loop.base.stats import CONFIDENCE, ratio_interval, t_quantile
from loop.machine.machine import machine
from loop.timing import verdicts
from loop.timing.verdicts import MAX_BLOCKS, confidence
from tests.bench.verdict_rules import (
    CHECKED,
    FASTER,
    ITERATIONS,
    SAME,
    SLOWER,
    UNCLEAR,
    Array,
    Calls,
    clip,
    criterion,
    mann_whitney,
    nvbench,
    peeking_t,
    sequential,
    unclipped,
    welch,
    words,
)

SIMULATIONS = 10_000
SLOWDOWNS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
ITERATION_SD = 0.0133


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
    table = {}
    for number, (name, judge) in enumerate(rules(*NOISES[title])):
        noise = name.partition(", ")[2] or str(number)
        table[name] = [judge(np.random.default_rng([*noise.encode(), round(at * 1000)]), at) for at in SLOWDOWNS]
    lines = [f"## {title}", ""]
    for word, cell in TABLES.items():
        lines.append(f"| {word} | {' | '.join(f'{slowdown:.1%}' for slowdown in SLOWDOWNS)} |")
        lines.append("|:--|" + "--:|" * len(SLOWDOWNS))
        lines += [f"| {name} | {' | '.join(map(cell, calls))} |" for name, calls in table.items()]
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
    """The interval of `loop.base.stats.ratio_interval`; some rows also run through that code and must agree."""
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
    """What `verdicts.by_interval` says of an interval of log ratios."""
    edge, twice = math.log1p(verdicts.MARGIN), math.log1p(verdicts.SAME_MARGIN)
    same = np.where((low > -twice) & (high < twice), SAME, UNCLEAR)
    return words(high < -edge, low > edge, same)


def against_the_baseline() -> list[str]:
    """`measure`: rounds fixed beforehand, one comparison of eleven in a session."""
    level = confidence(COMPARISONS)
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
                calls = [rule(logs) for logs in drawn]
                shares = [f"{100 * np.mean(called == SLOWER):.1f}" for called in calls]
                false = [np.mean(calls[0] <= FASTER), np.mean(calls[1] <= FASTER), np.mean(calls[2] == SAME)]
                session = [f"{100 * (1 - (1 - share) ** COMPARISONS):.2f}" for share in false]
                title = f"{name}, {rounds} rounds{', ' * bool(kind)}{kind}"
                lines.append(f"| {title} | {' | '.join([*shares, *session])} |")
    return [*lines, ""]


def main() -> None:
    begun, facts = time.perf_counter(), machine()
    today = datetime.datetime.now(datetime.UTC).date()
    body = [line for title in NOISES for line in section(title)] + against_the_baseline() + more_iterations()
    seconds = time.perf_counter() - begun
    origin = (
        f"By `make bench-verdict` on {today} in {seconds:.0f} s, seeded: {facts.processor}, {facts.cores} cores, "
    )
    origin += f"{facts.system}, Python {facts.python}, numpy {np.__version__}."
    rules = {**TOOLS, **ON_BLOCKS}
    rule_lines = [f"- {name}: {' '.join((rule.__doc__ or '').split())}" for name, rule in rules.items()]
    head = ["# Operating curves, simulated", "", origin, "", *introduction().splitlines(), ""]
    page = Path(__file__).parent / "VERDICT.md"
    page.write_text("\n".join([*head, *rule_lines, "", *body]).rstrip() + "\n")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
