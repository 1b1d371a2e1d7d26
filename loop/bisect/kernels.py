"""A search for what made a kernel slower or wrong: its worktree, its probes, its noise."""

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from loop.base.places import state_folder
from loop.bisect.builds import Builder
from loop.bisect.candidates import Line
from loop.bisect.gate import FailingGate, SpeedGate
from loop.bisect.hunt import Hunt
from loop.bisect.model import SearchMetric
from loop.bisect.probe_job import KEPT, PREFIX, ProbeTask, Spread
from loop.bisect.trying import CorrectnessProbe, LatencyProbe, ProbeMemory, ResourceProbe, memory_of
from loop.jobs.executor import Executor, all_done, opened
from loop.jobs.folder import forget_old
from loop.machine.machine import cores, machine
from loop.model.jobs import JobRun
from loop.model.target import CAbiVariant, Workload
from loop.profile.taking import calls_of
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench

BUILD_LIMIT_S = 600.0
COMPILERS = 4
"""So many run side by side at most."""


def kernel_hunt(
    bench: Bench,
    line: Line,
    trees: Sequence[Worktree],
    variant: str,
    metric: SearchMetric,
    workloads: Sequence[Workload],
    seed: int,
    *,
    emulated: bool = False,
) -> Hunt:
    """The search: each commit by its own recipe in `trees`, judged on these workloads of today's target."""
    if metric == "resources":
        return resource_hunt(bench, line, trees, variant)
    builder = Builder(bench, trees, variant, BUILD_LIMIT_S, line.good, emulated, inside=line.inside)
    processor = bench.device == "cpu"
    where = machine().processor if processor else ", ".join(machine().gpus[:1])
    question = (str(bench.folder), variant, where, str(bench.threads), *(["emulated"] if emulated else []))
    if metric == "correctness":
        prober = CorrectnessProbe(bench, builder, workloads, seed)
        failing = FailingGate(prober, question)
        return Hunt(
            line, prober, failing.memory(), metric, gate=failing, device=bench, width=len(trees), builder=builder
        )
    timer = LatencyProbe(bench, builder, workloads, seed)
    gate = SpeedGate(timer, question)
    return Hunt(line, timer, gate.memory(), metric, gate=gate, builder=builder, device=bench, width=len(trees))


def spread_hunt(
    executor: Executor, line: Line, staging: Path, terms: ProbeTask, width: int, ran: list[JobRun]
) -> Hunt:
    """The search by jobs: `width` commits at a time, each beside the good end on a device of its own.

    `staging`: an empty folder. Ratios of one search are of one kind of device; the first answer says which.
    """
    metric, names = terms.metric, [workload.name for workload in terms.workloads]
    jobs = Spread(functools.partial(all_done, executor), line.folder, staging, terms, terms.workloads, ran)
    question = (str(line.folder), terms.variant, "jobs", terms.device, str(terms.threads))
    if metric == "correctness":
        memory, gate = memory_of(metric, *question, *names), None
    else:
        gate = SpeedGate(jobs, question)
        memory = gate.memory()
    return Hunt(line, jobs, memory, metric, gate=gate, many=jobs.many, width=width)


@contextlib.contextmanager
def hunt_in_jobs(executor: str, line: Line, terms: ProbeTask, width: int, ran: list[JobRun]) -> Iterator[Hunt]:
    """The same, by jobs that end with it; what became of them goes to `ran`."""
    with contextlib.ExitStack() as stack:
        stack.callback(forget_old, KEPT, PREFIX)
        runner = stack.enter_context(contextlib.closing(opened(executor, width)))
        staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loop-bisect-")))
        yield spread_hunt(runner, line, staging, terms, width, ran)


def resource_hunt(bench: Bench, line: Line, trees: Sequence[Worktree], variant: str) -> Hunt:
    """The search for what made its kernels take more, on the GPU at hand or the first of the manifest's."""
    today = bench.target.variants[variant]
    assert isinstance(today, CAbiVariant)
    builder = Builder(bench, trees, variant, BUILD_LIMIT_S, line.good, architecture=bench.architecture)
    emulator = Builder(bench, trees, variant, BUILD_LIMIT_S, line.good, emulated=True) if today.emulation else None
    prober = ResourceProbe(builder, emulator, line.good, line.candidates[-1], calls_of(bench.target, today))
    # Builds are in the cache, and to look at one costs next to nothing.
    return Hunt(line, prober, ProbeMemory(None), "correctness", width=len(trees))


@contextlib.contextmanager
def own_trees(line: Line, name: str, width: int = 1) -> Iterator[list[Worktree]]:
    """A worktree for each compiler that may run; for `width` of them where there are so many cores."""
    with contextlib.ExitStack() as stack:
        count = min(cores(), max(COMPILERS, width))
        yield [stack.enter_context(own_tree(line, f"{name}-{number}")) for number in range(count)]


@contextlib.contextmanager
def own_tree(line: Line, name: str) -> Iterator[Worktree]:
    """A worktree for the time of a search; those of processes that were killed are taken away first."""
    root = state_folder() / "worktrees"
    for left in root.glob("bisect-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    tree = worktree.make_at(line.folder, root / f"bisect-{os.getpid()}-{name}", line.good.commit)
    try:
        yield tree
    finally:
        worktree.remove(tree)
