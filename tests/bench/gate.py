"""`make bench-gate`: how often a comparison is wrong, and how long it takes, by real measurements.

A variant is compared with itself, which must never be faster or slower, and with itself slowed by a known share.
Each contest takes fresh processes, fresh values and the sequential rule, as a session does.
"""

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds.build import build
from loop.library import targets
from loop.library.definitions import find_project
from loop.machine.machine import machine
from loop.model.dtypes import Device
from loop.model.workloads import expand_sets
from loop.timing import schedule, verdicts
from loop.timing.against_known_good import Contest, null_rival, slowed_rival
from loop.timing.samples import Limits, Timings
from loop.timing.verdicts import noise_between_rounds
from loop.workers.bench import Bench, Side

SLOWDOWNS = (0.05, 0.02)
LIMIT_S = 60.0  # For one contest.
MIN_CALL_S = 15e-6  # A loop on the host is no finer than 0.1 us: on shorter calls two per cent cannot be put in.


@dataclass
class Tally:
    """Verdicts of one kind of comparison, with blocks and seconds of each."""

    words: Counter[str] = field(default_factory=Counter)
    blocks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        total = self.words.total()
        shares = [f"{self.words[word]} ({self.words[word] / total:.1%})" for word in WORDS]
        typical = f"{median(self.blocks):.0f} | {median(self.seconds):.1f} s | {median(self.noise):.2%}"
        return f"| {name} | {total} | {' | '.join(shares)} | {typical} |"


WORDS = ("faster", "slower", "same", "inconclusive")
HEAD = "| Comparison | Number | Faster | Slower | Same | Inconclusive | Blocks | Alone | Block sd |"
RULE = "|:--|--:|--:|--:|--:|--:|--:|--:|--:|"


def study(bench: Bench, side: Side, sets: Sequence[str], times: int) -> dict[str, Tally]:
    """Verdicts of `times` contests of a variant with itself and with its slowed copies."""
    tallies = {name: Tally() for name in ("itself", *(f"slower by {share:.0%}" for share in SLOWDOWNS))}
    seed = int(time.time())
    workloads = expand_sets(bench.target, sets, bench.target.dtypes[bench.device], seed)
    long = long_enough(bench, side, workloads)
    for number in range(times):
        begun = time.perf_counter()
        rivals = [null_rival(side, workloads), *(slowed_rival(side, share, long) for share in SLOWDOWNS)]
        contest = Contest(side, rivals)
        terms = Limits(verdicts.MAX_BLOCKS, LIMIT_S, seed + number)
        timings = run_to_end(
            schedule.measure(bench, contest.sides, contest.workloads, terms, contest.pending_sides)
        )
        assert isinstance(timings, Timings)
        if timings.wrong_outputs:
            sys.exit(f"a timed output was wrong: {timings.wrong_outputs[0]}")
        count(tallies, contest, timings)
        sys.stderr.write(f"{number + 1} of {times}: {time.perf_counter() - begun:.1f} s, {words(tallies)}\n")
    return tallies


def words(tallies: dict[str, Tally]) -> str:
    """The verdicts so far, in a line."""
    return "; ".join(f"{name} {dict(tally.words)}" for name, tally in tallies.items())


def long_enough(bench: Bench, side: Side, workloads: Sequence[Any]) -> list[Any]:
    """Workloads whose calls take long enough to be slowed by a known share."""
    terms = Limits(2, 10.0, 1)
    timings = run_to_end(schedule.measure(bench, [side], workloads, terms))
    assert isinstance(timings, Timings)
    calls = {w.name: median(s for part in timings.segments_of(w.name) for s in part.seconds) for w in workloads}
    return [w for w in workloads if bench.device == "cuda" or calls[w.name] >= MIN_CALL_S]


def count(tallies: dict[str, Tally], contest: Contest, timings: Timings) -> None:
    """Add a contest's verdicts. `Alone`: seconds of one comparison without the others, processes included."""
    spent = timings.rounds_s
    a_block = spent / max(timings.rounds, 1) / len(contest.sides) / len(contest.workloads)
    for tally, rival in zip(tallies.values(), contest.rivals, strict=True):
        for workload in rival.workloads:
            decision = contest.decide_now(timings, workload, rival)
            logs = decision.log_ratios
            tally.words[decision.verdict] += 1
            tally.blocks.append(len(logs))
            tally.seconds.append(len(logs) * (2 * a_block + START_S))
            tally.noise.append(noise_between_rounds([logs]) or 0.0)


START_S = 0.08  # Two worker processes, started and ended.


def open_bench(device: Device, threads: int, folder: Path) -> Bench:
    """A bench on the bundled target, its cache in a folder of this run."""
    chosen = find_project(None, Path.cwd())
    return Bench(
        targets.read_target(chosen).value, chosen.target, folder / "builds", include_folder(), device, threads
    )


def built(bench: Bench, name: str) -> Side:
    """A compiled variant, ready to be timed."""
    variant = bench.compiled_variants((name,))[name]
    output = run_to_end(build(name, variant, bench.folder, cache=bench.cache, include=bench.include, limit_s=600))
    return bench.make_side(name, output)


def main() -> None:
    """Run the study named on the command line and print its table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate")
    parser.add_argument("--variant", default="cpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sets", nargs="+", default=["history"])
    parser.add_argument("--times", type=int, default=46)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="loop-gate-") as folder,
        open_bench(options.device, options.threads, Path(folder)) as bench,
    ):
        side = built(bench, options.variant)
        tallies = study(bench, side, options.sets, options.times)
    facts = machine()
    lines = [
        f"`{options.variant}` on {options.device}, {options.threads} thread(s), "
        f"{datetime.datetime.now(datetime.UTC).date()}: {facts.gpus[0] if facts.gpus else facts.processor}, "
        f"{facts.cores} cores; {options.times} contests.",
        "",
        HEAD,
        RULE,
        *(tally.row(name) for name, tally in tallies.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
