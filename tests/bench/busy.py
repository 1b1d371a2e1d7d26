"""`make bench-busy`: does a busy laptop get an answer? Verdicts while two other programs keep both cores busy.

`record` times the CPU kernel beside itself and beside a copy made 1.25 times slower, while the programs run. It
stores a thousand real rounds. `draw` makes verdicts of 25 s from blocks of consecutive rounds, through the code
that sessions use (moving-block bootstrap, Künsch 1989: neighbours stay together). `live` makes a few verdicts by
real timing.
"""

import argparse
import datetime
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from loop.base.processes import run_to_end
from loop.base.stats import winsorise
from loop.calls.call import LibraryTerms
from loop.machine.machine import cores, machine
from loop.model.measurement import Segment
from loop.model.target import Workload
from loop.model.workloads import expand_sets
from loop.timing import samples, schedule, verdicts
from loop.timing.against_known_good import Contest, Rival, null_rival, slowed_rival
from loop.timing.samples import Limits, Pair, Timings
from loop.timing.verdicts import noise_between_rounds
from loop.workers.bench import Bench, Side
from tests.bench.gate import built, open_bench
from tests.bench.rig import busy_programs

RECORDED = Path(__file__).parent / "recorded" / "busy.json"
RESULTS = Path(__file__).parent / "BUSY.md"
SET, WORKLOAD = "history", "B2 H8 S128 D64 causal float32"
SLOWER = 0.25
VERDICT_S = 25.0
TOGETHER = 5  # Consecutive rounds that are drawn together.
DRAWN = {"1.25 times slower": 200, "itself": 500}
MEASURED_ROUNDS = 9  # Rounds of `measure`, whose rule has no more than that.
OTHERS = 2
THREADS = 1  # Of the kernel, as a session has on two cores: the judge watches from the other.


def kernel(folder: Path, measure: Callable[[Bench, Side, Workload], None]) -> None:
    """Open a bench on the bundled kernel, and measure its variant `cpu` there on one workload."""
    with open_bench("cpu", THREADS, folder) as bench:
        quick = expand_sets(bench.target, [SET], "float32", 1)
        measure(bench, built(bench, "cpu"), next(workload for workload in quick if workload.name == WORKLOAD))


def record(rounds: int) -> None:
    """Time so many rounds while the others run, and store them."""
    began: list[float] = []

    def measure(bench: Bench, side: Side, workload: Workload) -> None:
        sides = [side, null_rival(side, [workload]).side, slowed_rival(side, SLOWER, [workload]).side]
        open_ = {workload.name: [timed_side.name for timed_side in sides]}

        def pending(timings: Timings) -> Mapping[str, Sequence[str]]:
            if len(began) <= timings.rounds:
                began.append(time.monotonic())
                sys.stderr.write(f"\r{timings.rounds} of {rounds} rounds")
            return open_

        terms = Limits(rounds, float("inf"), int(time.time()))
        timings = run_to_end(schedule.measure(bench, sides, [workload], terms, pending))
        assert isinstance(timings, Timings)
        _store(timings, [*began, time.monotonic()], [timed_side.name for timed_side in sides])

    with tempfile.TemporaryDirectory(prefix="loop-busy-") as folder, busy_programs(OTHERS):
        kernel(Path(folder), measure)


def _store(timings: Timings, began: Sequence[float], sides: Sequence[str]) -> None:
    """Write a line for each round: its seconds, then `_short` of each segment."""
    rows = []
    for number in range(timings.rounds):
        by_side = [[s for s in timings.segments if s.round == number and s.side == name] for name in sides]
        cells = [[_short(segment) for segment in segments] for segments in by_side]
        rows.append([round(began[number + 1] - began[number], 3), *cells])
    facts = machine()
    head = {
        "on": str(datetime.datetime.now(datetime.UTC).date()),
        "machine": f"{facts.processor}, {facts.cores} cores, {facts.system}, Python {facts.python}",
        "programs": OTHERS,
        "sides": list(sides),
        "waits": any(segment.waited for segment in timings.segments),
    }
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(head)[:-1] + ',\n"rounds": [\n' + lines + "\n]}\n")


def _short(segment: Segment) -> list[Any]:
    """The samples of a segment that decide a verdict, in microseconds.

    The median alone if three or more are clean; else the three that waited least, with their share of waiting.
    """
    readings = samples.samples_of_segment(segment)
    clean = [sample for sample in readings if sample.waited_share <= samples.CLEAN_WAIT_SHARE]
    if len(clean) >= samples.FEWEST_SAMPLES:
        return [_us(median([sample.seconds for sample in clean]))]
    calmest = sorted(readings, key=lambda sample: sample.waited_share)[: samples.FEWEST_SAMPLES]
    return [[_us(sample.seconds), round(sample.waited_share, 3)] for sample in calmest]


def _us(seconds: float) -> float:
    return float(f"{seconds * 1e6:.5g}")


def _long(cells: Sequence[Any]) -> list[tuple[float, float]]:
    """Seconds and share of waiting of three samples: the inverse of `_short`."""
    if len(cells) == 1 and not isinstance(cells[0], list):
        return [(cells[0] * 1e-6, 0.0)] * samples.FEWEST_SAMPLES
    return [(us * 1e-6, share) for us, share in cells]


def replay(recorded: Mapping[str, Any], rival: str, seed: int) -> Iterator[tuple[float, list[Segment]]]:
    """Draw recorded rounds endlessly: seconds, and the segments of the candidate and of one rival."""
    rows, draw, number = recorded["rounds"], random.Random(f"{rival} {seed}"), 0
    names = recorded["sides"]
    while True:
        start = draw.randrange(len(rows))
        for row in [rows[(start + step) % len(rows)] for step in range(TOGETHER)]:
            spent = row[0] * 2 / len(names)
            yield (
                spent,
                [
                    _segment(name, number, _long(cells), waits=recorded["waits"])
                    for name, segments in zip(names, row[1:], strict=True)
                    if name in (names[0], rival)
                    for cells in segments
                ],
            )
            number += 1


def _segment(name: str, number: int, pairs: Sequence[tuple[float, float]], *, waits: bool) -> Segment:
    return Segment(
        side=name,
        workload=WORKLOAD,
        round=number,
        calls=1,
        seconds=tuple(seconds for seconds, _ in pairs),
        waited=tuple(seconds * share for seconds, share in pairs) if waits else (),
    )


def verdict(recorded: Mapping[str, Any], rival: str, seed: int) -> tuple[verdicts.Decision, int]:
    """The sequential rule's decision within `VERDICT_S`, and the count of its rounds."""
    candidate, workload = _side(recorded["sides"][0]), Workload(name=WORKLOAD, sizes={}, dtype="float32")
    contest = Contest(candidate, [Rival(_side(rival), [workload])])
    timings, used_s = Timings(), 0.0
    for spent_s, segments in replay(recorded, rival, seed):
        if not contest.pending_sides(timings) or used_s + spent_s > VERDICT_S:
            break
        used_s += spent_s
        timings.segments += segments
        timings.rounds += 1
    return contest.decide_now(timings, workload, contest.rivals[0]), timings.rounds


def verdict_of_measure(recorded: Mapping[str, Any], rival: str, seed: int) -> str:
    """The verdict of the rule that `measure` uses, with the rival in the baseline's place."""
    workload = Workload(name=WORKLOAD, sizes={}, dtype="float32")
    drawn = replay(recorded, rival, seed)
    segments = [segment for _ in range(MEASURED_ROUNDS) for segment in next(drawn)[1]]
    name = recorded["sides"][0]
    pair = Pair(_side(name), rival, "baseline")
    if len(samples.log_ratios(segments, rival, name)) < 2:
        return "inconclusive"
    return verdicts.by_interval(verdicts.measure_pair(Timings(segments), pair, workload)).verdict


def _side(name: str) -> Side:
    return Side(name, LibraryTerms("cpu", "f", "", ""), ("float32",), deterministic=True, build_id="recorded")


def draw() -> list[str]:
    """Lines of the table of verdicts that are drawn from the recorded rounds."""
    recorded = json.loads(RECORDED.read_text())
    rivals = dict(zip(DRAWN, reversed(recorded["sides"][1:]), strict=True))
    lines = [
        f"{len(recorded['rounds'])} rounds recorded on {recorded['on']}: {recorded['machine']}, while "
        f"{recorded['programs']} other programs kept the cores busy. Waits were "
        f"{'read' if recorded['waits'] else 'not read'}.",
        "",
        "| The candidate against | Rule | Verdicts | Faster | Slower | Same | Inconclusive | Median rounds |",
        "|:--|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for title, count in DRAWN.items():
        drawn = [verdict(recorded, rivals[title], seed) for seed in range(count)]
        decisions, rounds = zip(*drawn, strict=True)
        words = [verdict_of_measure(recorded, rivals[title], seed) for seed in range(count)]
        lines.append(_row(title, f"{VERDICT_S:g} s", [decision.verdict for decision in decisions], rounds))
        lines.append(_row(title, f"{MEASURED_ROUNDS} rounds, as `measure`", words, [MEASURED_ROUNDS]))
    return [*lines, "", *_noise(recorded, rivals)]


def _row(title: str, rule: str, words: Sequence[str], rounds: Sequence[int]) -> str:
    counts = Counter(words)
    cells = [str(counts[word]) for word in ("faster", "slower", "same", "inconclusive")]
    return f"| {title} | {rule} | {len(words)} | {' | '.join(cells)} | {median(rounds):g} |"


def _noise(recorded: Mapping[str, Any], rivals: Mapping[str, str]) -> list[str]:
    """How the recorded rounds scatter, and how many the waits leave out."""
    lines = []
    for title, rival in rivals.items():
        segments = []
        for number, row in enumerate(recorded["rounds"]):
            single = {**recorded, "rounds": [row]}
            drawn = next(replay(single, rival, 0))[1]
            segments += [segment.model_copy(update={"round": number}) for segment in drawn]
        logs = samples.log_ratios(segments, rival, recorded["sides"][0])
        winsorised = winsorise(logs)
        lines.append(
            f"- {title}: {len(logs)} of {len(recorded['rounds'])} rounds count, median ratio "
            f"{math.exp(median(logs)):.3f}, block sd {noise_between_rounds([logs]) or 0.0:.1%} with "
            f"{winsorised.clipped_count} outliers pulled in."
        )
    return lines


def live(count: int) -> list[str]:
    """Lines on `count` live verdicts of `VERDICT_S` each, while other programs run."""
    words: list[str] = []
    rounds: list[int] = []

    def measure(bench: Bench, side: Side, workload: Workload) -> None:
        for number in range(count):
            contest = Contest(side, [slowed_rival(side, SLOWER, [workload])])
            terms = Limits(verdicts.MAX_BLOCKS, VERDICT_S, int(time.time()))
            timings = run_to_end(schedule.measure(bench, contest.sides, [workload], terms, contest.pending_sides))
            assert isinstance(timings, Timings)
            # The contest's candidate is the slowed side, so its verdict is turned around.
            word = contest.decide_now(timings, workload, contest.rivals[0]).verdict
            words.append({"slower": "faster", "faster": "slower"}.get(word, word))
            rounds.append(timings.rounds)
            sys.stderr.write(f"\r{number + 1} of {count}: {dict(Counter(words))}")

    with tempfile.TemporaryDirectory(prefix="loop-busy-") as folder, busy_programs(OTHERS):
        kernel(Path(folder), measure)
    return ["", "Live:", "", _row("1.25 times slower", f"{VERDICT_S:g} s, live", words, rounds)]


def main() -> None:
    """Record, draw, or measure live; what is drawn replaces BUSY.md, what is live is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.busy")
    parser.add_argument("do", choices=["record", "draw", "live"], nargs="?", default="draw")
    parser.add_argument("--count", type=int, help="rounds to record (1,000), or live verdicts (30)")
    options = parser.parse_args()
    if options.do == "record":
        record(options.count or 1000)
    elif options.do == "live":
        print("\n".join(live(options.count or 30)))
    else:
        text = ["# Verdicts on a busy machine", "", *draw()]
        RESULTS.write_text("\n".join(text) + "\n")
        print("\n".join(text))
    sys.stderr.write(f"\n{cores()} cores\n")


if __name__ == "__main__":
    main()
