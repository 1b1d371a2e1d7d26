"""Compiled variants called as PyTorch calls its own operators, where calls are so short that this tells."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.base.stats import geometric_mean
from loop.model.measurement import Build, Measurement, Segment
from loop.model.output import OperatorSpeed
from loop.model.verdict import NoSpeedVerdict
from loop.timing import schedule
from loop.timing.doubts import doubts
from loop.timing.ratios import measurements
from loop.timing.samples import Pair
from loop.timing.terms import Terms
from loop.timing.ways import as_operator
from loop.workers.bench import Bench, Side

SHORT_US = 50.0
"""Calls up to this are timed both ways: what PyTorch takes for a call is a few per cent of longer ones."""
SHORTEST, ROUNDS = 3, 2
"""Workloads of a variant, the shortest, and rounds: each starts a process that imports torch."""
NEEDED_S = 4.0
"""What it takes, at least; nothing is begun in a step that is shorter than four times that."""
TELLING = 1.1
"""Ratios that differ by less are told as one."""


@dataclass
class Offered:
    """Variants as operators, and what was not tried."""

    speeds: tuple[OperatorSpeed, ...] = ()
    distrusted: tuple[NoSpeedVerdict, ...] = ()
    segments: tuple[Segment, ...] = ()
    missing: tuple[str, ...] = ()
    ways: tuple[tuple[str, str], ...] = ()
    """Sides and how they are called."""


def time_operators(
    bench: Bench,
    builds: Sequence[Build],
    measured: Sequence[Measurement],
    budget_s: float,
    left_s: float,
    seed: int,
) -> Generator[Tick, None, list[Offered]]:
    """Each compiled variant that has short calls, against its own call through C in the same rounds.

    `budget_s`: what the whole step is meant to take; `left_s`: what is left of it.

    On a GPU both are replayed in a graph, where the way of calling takes no time.
    """
    found: list[Offered] = []
    for build in builds if bench.device == "cpu" else ():
        ours = [one for one in measured if one.variant == build.variant and one.candidate_us < SHORT_US]
        chosen = sorted(ours, key=lambda one: one.candidate_us)[:SHORTEST]
        what = f"{build.variant} as an operator of PyTorch"
        if not chosen:
            continue
        if budget_s < 4 * NEEDED_S or left_s < len(found) * NEEDED_S:
            found.append(Offered(missing=(f"{what}: the step's time was too short",)))
            continue
        try:
            found.append((yield from _time(bench, build, chosen, seed)))
        except LoopError as error:
            found.append(Offered(missing=(f"{what}: {error.message}",)))
    return found


def _time(bench: Bench, build: Build, chosen: Sequence[Measurement], seed: int) -> Generator[Tick, None, Offered]:
    direct = bench.side(build.variant, build)
    offered: Side = as_operator(bench, direct, build)
    workloads = [one.workload for one in chosen]
    limits = Terms(ROUNDS, NEEDED_S, seed)
    timings = yield from schedule.measure(bench, [direct, offered], workloads, limits)
    pairs = [Pair(offered, build.variant, direct.name, "self")]
    distrusted = yield from doubts(bench, timings, (), pairs)
    both = {one.workload.name: one for one in measurements(bench.target, pairs, workloads, timings)}
    return Offered(
        tuple(_speed(one, both[one.workload.name]) for one in chosen if one.workload.name in both),
        tuple(one.model_copy(update={"reason": f"as an operator: {one.reason}"}) for one in distrusted),
        tuple(timings.segments),
        ways=((offered.name, timings.ways[offered.name]),),
    )


def _speed(direct: Measurement, operator: Measurement) -> OperatorSpeed:
    """`operator` is measured against the call through C."""
    return OperatorSpeed(
        variant=direct.variant,
        workload=direct.workload.name,
        us=operator.candidate_us,
        ratio=direct.ratio * operator.ratio,
        direct_ratio=direct.ratio,
        rounds=operator.rounds,
    )


def both_ways(speeds: Sequence[OperatorSpeed]) -> dict[str, str]:
    """`2.7x called through C, 1.3x as an operator of PyTorch on its 3 shortest workloads`, by variant."""
    found = {}
    for name in dict.fromkeys(one.variant for one in speeds):
        ours = [one for one in speeds if one.variant == name]
        direct, offered = (geometric_mean([getattr(one, of) for one in ours]) for of in ("direct_ratio", "ratio"))
        where = "its shortest workload" if len(ours) == 1 else f"its {len(ours)} shortest workloads"
        if max(direct, offered) > TELLING * min(direct, offered):
            found[name] = f"{direct:.2g}x called through C, {offered:.2g}x as an operator of PyTorch on {where}"
    return found
