"""Variants against the baseline under `torch.compile`, which is compiled before anything is timed."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from time import monotonic

from loop.base.errors import LoopError
from loop.base.processes import Tick
from loop.model.measurement import Measurement, Segment
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict
from loop.timing import schedule
from loop.timing.doubts import doubts
from loop.timing.ratios import measurements
from loop.timing.samples import Pair
from loop.timing.terms import Terms
from loop.workers.bench import Bench, Side
from loop.workers.expectations import function_terms
from loop.workers.program import START_LIMIT_S, Refusal, WorkerLost
from loop.workers.worker_messages import Prepare

NAME = "torch.compile of the baseline"
MODULE, COMPILES = "loop.workers.compiled:baseline", "LOOP_COMPILES"
"""What a worker loads by name, and the environment variable that tells it which function is compiled."""
COMPILE_S = 120.0
"""What compiling all workloads may take."""
NEEDED_S = 15.0
"""Nothing is compiled in a step that has less time left."""
ROUNDS = 5


@dataclass
class Compiled:
    """Variants against what was compiled, and why some or all of it is missing."""

    measured: tuple[Measurement, ...] = ()
    distrusted: tuple[NoSpeedVerdict, ...] = ()
    segments: Sequence[Segment] = field(default_factory=list)
    missing: tuple[str, ...] = ()


def time_compiled(
    bench: Bench, sides: Sequence[Side], workloads: Sequence[Workload], left_s: float, seed: int
) -> Generator[Tick, None, Compiled]:
    """Each variant against the compiled baseline, turn about, as far as the step's time allows."""
    if left_s < NEEDED_S:
        return Compiled(missing=(f"{NAME}: not available here: the step's time was too short",))
    begun = monotonic()
    side = _side(bench)
    why = yield from _compile(bench, side, workloads, min(COMPILE_S, left_s / 2))
    if why:
        return Compiled(missing=(f"{NAME}: not available here: {why}",))
    try:
        terms = Terms(ROUNDS, left_s - (monotonic() - begun), seed)
        timings = yield from schedule.measure(bench, [side, *sides], workloads, terms)
        pairs = [Pair(one, one.name, NAME, "torch_compile") for one in sides]
        measured = measurements(bench.target, pairs, workloads, timings)
        found = yield from doubts(bench, timings, measured, pairs)
    except LoopError as error:
        return Compiled(missing=(f"{NAME}: not available here: {error.message}",))
    if wrong := next((check.message for name, check in timings.wrong if name == NAME), ""):
        return Compiled(missing=(f"{NAME}: not available here: its output is wrong: {wrong}",))
    # A GPU that held the compiled side back says nothing of a variant.
    held = {(one.variant, one.workload): one.reason for one in found if one.cause == "held back"}
    missing = tuple(f"{name} against {NAME} on {workload}: {why}" for (name, workload), why in held.items())
    kept = tuple(one for one in measured if (one.variant, one.workload.name) not in held)
    return Compiled(kept, tuple(one for one in found if one.cause != "held back"), timings.segments, missing)


def _side(bench: Bench) -> Side:
    """The baseline under `torch.compile`. Finished code lies with finished builds: fresh processes find it."""
    plain, cache = bench.side("baseline"), bench.cache / "inductor"
    return plain.renamed(
        NAME,
        terms=function_terms(bench.target, MODULE),
        environment={
            COMPILES: bench.target.baseline.python,
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # A worker starts no processes of its own.
        },
    )


def _compile(
    bench: Bench, side: Side, workloads: Sequence[Workload], limit_s: float
) -> Generator[Tick, None, str]:
    """Call it once on each workload, in a process that is not timed; why that failed, empty when it did not."""
    ends, note = monotonic() + limit_s, f"{NAME}: compiling"
    try:
        with bench.open(side) as worker:
            yield from worker.receive(START_LIMIT_S, note)
            for workload in workloads:
                yield from bench.expect(workload)
                request = Prepare(bench.call(workload, side.name))
                yield from worker.ask(request, limit_s=max(ends - monotonic(), 1.0), note=note)
    except WorkerLost as lost:
        return f"compiling took more than {limit_s:.0f} s" if lost.kind == "hung" else f"{lost}"
    except (Refusal, LoopError) as error:
        return str(error)
    return ""
