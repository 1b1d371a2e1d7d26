"""`make bench-optimize`: are winners of a campaign real, and does every proposer end?

Campaigns of 40 scripted candidates of known worth are judged by the code that sessions use. Their rounds are those
of a kernel against itself, recorded once (`bench-busy-record`), moved by the candidate's true ratio. Then come 50
proposers that do not want to end, and whole campaigns (`optimize_live`), for real. Each is stored when it is done:
after an interruption the same command goes on.
"""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil

from loop.agents.proposing import ProposerTask, kill_new_orphans, run_proposer
from loop.base.documents import write_atomic
from loop.base.processes import run_to_end
from loop.base.stats import ratio_interval, winsorise
from loop.machine.machine import machine
from loop.model.campaign import Campaign
from loop.model.measurement import SpeedVerdict
from loop.optimize.comparisons import decide_on_change
from loop.timing import samples, verdicts
from loop.timing.against_known_good import is_hopeful
from tests.bench.busy import RECORDED, replay
from tests.bench.optimize_live import live
from tests.bench.optimize_live import page as live_page

RESULTS = Path(__file__).parent / "OPTIMIZE.md"
DONE = Path(__file__).parent / "recorded" / "optimize.json"
CAMPAIGNS, LIVE, CANDIDATES, WORKLOADS, ROUNDS = 200, 10, 40, 2, verdicts.MORE_BLOCKS
WITH_MEMORY = 100  # Pairs of sessions at most.
KINDS = {"faster": 0.2, "neutral": 0.5, "layout": 0.15, "wrong": 0.15}
"""Share of each kind in the pool. Wrong patches and cheats have no speed; benches of the gate count them."""
LAYOUT_SD = 0.007  # Standard deviation of a build's speed between layouts.
CALM = 0.2  # Factor on the recorded scatter that simulates a machine without other programs.


def null_logs() -> list[float]:
    """Log ratios of the recorded rounds, of the kernel against itself."""
    recorded = json.loads(RECORDED.read_text())
    drawn, rival = replay(recorded, recorded["sides"][1], 1), recorded["sides"][1]
    logs: list[float] = []
    for _ in range(2000):
        _, segments = next(drawn)
        logs += samples.log_ratios(segments, rival, recorded["sides"][0])
    return logs


def candidate(draw: random.Random) -> tuple[str, float]:
    """A kind, and the true log ratio against what it replaces."""
    (kind,) = draw.choices(list(KINDS), weights=list(KINDS.values()))
    if kind == "faster":
        return kind, math.log1p(draw.uniform(0.02, 0.40))
    return kind, draw.gauss(0, LAYOUT_SD) if kind == "layout" else 0.0


def rounds(logs: Sequence[float], true: float, scatter: float, draw: random.Random) -> list[float]:
    """Log ratios of one candidate on one workload: runs of five consecutive recorded rounds, moved by `true`."""
    ratios: list[float] = []
    while len(ratios) < ROUNDS:
        start = draw.randrange(len(logs))
        ratios += [true + scatter * logs[(start + step) % len(logs)] for step in range(5)]
    return ratios[:ROUNDS]


def keeps(logs: Sequence[float], true: float, scatter: float, number: int, draw: random.Random) -> bool:
    """Whether the shipped rules keep the `number`-th candidate of a campaign; unclear ones get more rounds."""
    drawn = [rounds(logs, true, scatter, draw) for _ in range(WORKLOADS)]
    for count in range(verdicts.FUTILE_BLOCKS, verdicts.MAX_BLOCKS):
        so_far = [verdicts.by_evidence(ratios[:count], candidate_number=1) for ratios in drawn]
        if min(decision.against_faster for decision in so_far) >= verdicts.FUTILE_EVIDENCE:
            return False  # As `Contest.pending_sides`; a pair that is faster has no such evidence.
    decisions = [decided(ratios, number, range(verdicts.MIN_BLOCKS, verdicts.MAX_BLOCKS + 1)) for ratios in drawn]
    if is_hopeful(
        [decision.verdict for decision, _ in decisions],
        [ratios[:count] for ratios, (_, count) in zip(drawn, decisions, strict=True)],
    ):
        counts = range(verdicts.MAX_BLOCKS, ROUNDS + 1)
        decisions = [
            earlier if earlier[0].verdict == "same" else decided(ratios, number, counts)
            for ratios, earlier in zip(drawn, decisions, strict=True)
        ]
    speeds = []
    for place, (ratios, (decision, count)) in enumerate(zip(drawn, decisions, strict=True)):
        ratio, low, high = ratio_interval(winsorise(ratios[:count]).values)
        speeds.append(
            SpeedVerdict(
                variant="cpu", workload=f"w{place}", against="known_good", verdict=decision.verdict, ratio=ratio,
                interval=(low, high), e_value=decision.e_value, reason=decision.reason,
            )
        )  # fmt: skip
    return decide_on_change(None, speeds, 0.01)[0] == "kept"


def decided(drawn: Sequence[float], number: int, counts: range) -> tuple[verdicts.Decision, int]:
    """The first decision after one of these counts of rounds, and that count."""
    for count in counts:
        decision = verdicts.by_evidence(drawn[:count], WORKLOADS, 0.0, number)
        if decision.verdict != "inconclusive":
            break
    return decision, count


def campaign(logs: Sequence[float], scatter: float, seed: int) -> dict[str, Any]:
    """Kinds proposed and kept in one campaign, and the false keeps: not faster at all."""
    draw = random.Random(f"{scatter} {seed}")
    counts: dict[str, Any] = {"gains": 0, "gains_kept": 0, "layout": 0, "layout_kept": 0, "false": 0}
    number = 0
    for _ in range(CANDIDATES):
        kind, true = candidate(draw)
        number += 1
        if kind == "wrong":
            continue
        is_kept = keeps(logs, true, scatter, number, draw)
        gain, layout = kind == "faster" and true >= math.log1p(0.03), kind == "layout"
        counts["gains"] += gain
        counts["gains_kept"] += gain and is_kept
        counts["layout"] += layout
        counts["layout_kept"] += layout and is_kept
        counts["false"] += is_kept and true <= 0
    return counts


def to_the_best(logs: Sequence[float], seed: int, *, memory: bool) -> int | None:
    """Candidates that a second session tries until it keeps the best patch left; None if it never keeps it.

    Both draw from one pool. With memory, the second session skips what the first one rejected.
    """
    draw = random.Random(f"memory {seed}")
    pool = [true for kind, true in (candidate(draw) for _ in range(CANDIDATES)) if kind != "wrong"]
    draw.shuffle(pool)
    tried, fresh = pool[: len(pool) // 2], pool[len(pool) // 2 :]
    rejected = [true for number, true in enumerate(tried, 1) if not keeps(logs, true, 1.0, number, draw)]
    remaining = fresh if memory else fresh + rejected
    best = max(fresh + rejected)
    random.Random(f"order {seed}").shuffle(remaining)
    for number, true in enumerate(remaining, 1):
        if true == best and keeps(logs, true, 1.0, number, draw):
            return number
    return None


NASTY = {
    "ignores TERM": "trap '' TERM INT HUP; while :; do sleep 0.2; done",
    "sleeps for ever": "sleep 100000",
    "fills stdout": "yes",
    "fills stderr": "yes >&2",
    "exits without an edit": "exit 0",
    "deletes its folder": 'rm -rf "$PWD"; sleep 100000',
    "forks": "for i in 1 2 3 4 5 6 7 8; do sleep 100000 & done; sleep 100000",
    "leaves a background process": "sleep 100000 & exit 0",
    "daemonises": "setsid sh -c 'sleep 100000' >/dev/null 2>&1 & exit 0",
    "daemonises without environment": "env -i setsid sh -c 'sleep 100000 & sleep 100000' >/dev/null 2>&1 & exit 0",
}
"""Shell scripts that do not want to end; each is tried with five deadlines."""
DEADLINES = (0.3, 0.5, 0.8, 1.2, 2.0)


def nasty(key: str) -> dict[str, Any]:
    """Run the proposer of `NAME | SECONDS`: seconds from its deadline to its end, and processes left then."""
    name, _, deadline = key.partition(" | ")
    limit_s = float(deadline)
    before = {process.pid for process in psutil.process_iter()}
    with tempfile.TemporaryDirectory(prefix="loop-nasty-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        page = Path(folder) / "brief.md"
        page.write_text("brief\n")
        begun = time.monotonic()
        campaign, printed = Campaign(proposer=NASTY[name], quiet_minutes=1), Path(folder) / "printed"
        task = ProposerTask(1, campaign, page, work, work, work / "locks", printed, limit_s)
        with kill_new_orphans():
            result = run_to_end(run_proposer(task))
        late = time.monotonic() - begun - limit_s
    started = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    alive = [process for process in started if "100000" in (process.info["cmdline"] or ())]
    return {"ended": result.ended, "late_s": round(max(0.0, late), 2), "left": len(alive)}


def each(kind: str, keys: Sequence[object], work: Callable[[str], Any]) -> Iterator[Any]:
    """The result of each key; a result that is not stored yet is computed and stored."""
    for key in keys:
        name = f"{kind} {key}"
        results: dict[str, Any] = json.loads(DONE.read_text()) if DONE.exists() else {}
        if name not in results:
            results[name] = work(str(key))
            write_atomic(DONE, json.dumps(results, indent=1, sort_keys=True) + "\n")
            sys.stderr.write(f"\r{name}: {results[name]}    ")
        yield results[name]


def with_memory(logs: Sequence[float], campaigns: int) -> list[str]:
    """Lines of the table that compares campaigns with and without memory."""
    lines = [
        "",
        "## With memory and without",
        "",
        f"A first session judges half of a pool of {CANDIDATES} patches. A second one draws from the rest and,",
        "without memory, from what the first took back, too. Counted: its candidates until it keeps the best",
        "patch that is left.",
        "",
        "| Memory | Median | Mean | Found in |",
        "|:--|--:|--:|--:|",
    ]
    for memory in (True, False):
        name = f"memory {'on' if memory else 'off'}"
        work = lambda key, on=memory: to_the_best(logs, int(key), memory=on)  # noqa: E731
        counts = [count for count in each(name, range(campaigns), work) if count is not None]
        figures = f"{median(counts):.0f} | {fmean(counts):.1f} | {len(counts)} of {campaigns}"
        lines.append(f"| {name.removeprefix('memory ')} | {figures} |")
    return lines


def write(campaigns: int, lives: Sequence[Any]) -> None:
    """Run the simulated campaigns that are not stored yet, and write the page."""
    logs = null_logs()
    facts = machine()
    lines = [
        "# Campaigns of `loop optimize`",
        "",
        f"{facts.processor}, {facts.cores} cores, Python {facts.python}.",
        f"`make bench-optimize CAMPAIGNS={campaigns}`.",
        "",
        "## Scripted candidates, replayed",
        "",
        f"{campaigns} campaigns of {CANDIDATES} candidates on {WORKLOADS} workloads, by the sessions' own rules.",
        "Rounds are those recorded on a busy machine for [BUSY.md](BUSY.md), moved by the true ratio.",
        "`calm` has a fifth of their scatter: a simulation of an idle machine. What layout alone does is assumed:",
        f"a normal distribution with a standard deviation of {LAYOUT_SD:.1%}. This is by the clock alone: what",
        "the machine code tells of layout is left out.",
        "",
        "| Rounds | Campaigns with a false keep | True gains of 3 % or more kept | Layout alone kept |",
        "|:--|--:|--:|--:|",
    ]
    for name, scatter in (("as recorded", 1.0), ("calm", CALM)):
        work = lambda key, scatter=scatter: campaign(logs, scatter, int(key))  # noqa: E731
        played = list(each(name, range(campaigns), work))
        total = {key: sum(result[key] for result in played) for key in played[0]}
        false_keeps = sum(result["false"] > 0 for result in played)
        lines.append(
            f"| {name} | {false_keeps} of {campaigns} | {total['gains_kept']} of {total['gains']} "
            f"| {total['layout_kept']} of {total['layout']} |"
        )
    lines += with_memory(logs, min(campaigns, WITH_MEMORY))
    keys = [f"{name} | {limit}" for name in NASTY for limit in DEADLINES]
    results = list(each("nasty", keys, nasty))
    worst: Mapping[str, Any] = max(results, key=lambda result: result["late_s"])
    lines += [
        "",
        "## Proposers that do not want to end",
        "",
        f"{len(results)} proposers: {', '.join(NASTY)}; each with five deadlines.",
        "",
        f"- The last was gone {worst['late_s']:.1f} s after its deadline.",
        f"- Processes left: {sum(result['left'] for result in results)}.",
        *live_page(lives),
        "",
        "No agent's program was at hand: presets are tested on their documented formats only.",
    ]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=CAMPAIGNS)
    parser.add_argument("--live", type=int, default=LIVE)
    options = parser.parse_args()
    write(options.campaigns, list(each("live", range(options.live), lambda key: live(int(key)))))
