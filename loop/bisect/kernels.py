"""A search for what made a kernel slower, wrong or hungrier: its worktrees, its probes, its memory."""

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil

from loop.base.places import state_folder
from loop.bisect.builds import Builder
from loop.bisect.candidates import Line
from loop.bisect.gate import FailingGate, SpeedGate, memory_for
from loop.bisect.hunt import Hunt
from loop.bisect.model import SearchMetric
from loop.bisect.probe_job import KEPT, PREFIX, ProbeTask, Spread
from loop.bisect.trying import CorrectnessProbe, LatencyProbe, ProbeMemory, ResourceProbe
from loop.jobs.executor import all_done, opened
from loop.jobs.folder import forget_old
from loop.machine.machine import cores, machine
from loop.model.dtypes import Device
from loop.model.jobs import JobRun
from loop.model.target import CAbiVariant, Target, Workload
from loop.profile.taking import calls_of
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench

BUILD_LIMIT_S = 600.0
COMPILERS = 4
"""So many run side by side at most."""
SAID: dict[SearchMetric, str] = {
    "latency": "is slower",
    "correctness": "is wrong",
    "resources": "takes more resources",
}


@dataclass(frozen=True)
class Regression:
    """What the gate says against a variant."""

    variant: str
    metric: SearchMetric
    workloads: tuple[Workload, ...] = ()
    """Where it shows; nothing for resources."""
    emulated: bool = False
    architecture: str = ""
    """The GPU that it was compiled for, where its resources are in question."""

    @property
    def what(self) -> str:
        """`split_k is wrong under the emulator`."""
        return f"{self.variant} {SAID[self.metric]}{' under the emulator' if self.emulated else ''}"


@dataclass(frozen=True)
class Place:
    """Where commits are tried."""

    target: Target
    device: Device
    threads: int | None
    seed: int
    width: int
    """Commits at a time. On one device they are built so, and timed one after the other."""
    executor: str = ""
    """Who runs probes as jobs, each beside the good end on a device of its own; empty: this process."""


@contextlib.contextmanager
def kernel_hunt(
    regression: Regression,
    line: Line,
    place: Place,
    bench: AbstractContextManager[Bench],
    ran: list[JobRun] | None = None,
) -> Iterator[Hunt]:
    """The search, on today's workloads. `bench` is opened unless jobs try the commits; what became of jobs goes to
    `ran`."""
    with contextlib.ExitStack() as stack:
        if place.executor and regression.metric != "resources":
            stack.callback(forget_old, KEPT, PREFIX)
            runner = stack.enter_context(contextlib.closing(opened(place.executor, place.width)))
            staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loop-bisect-")))
            terms = _terms(regression, line, place)
            jobs = Spread(
                functools.partial(all_done, runner),
                line.folder,
                staging,
                terms,
                regression.workloads,
                ran if ran is not None else [],
            )
            asked = (str(line.folder), regression.variant, "jobs", place.device, str(place.threads))
            gate = SpeedGate(jobs, asked) if terms.metric == "latency" else None
            memory = memory_for(terms.metric, asked, jobs)
            yield Hunt(line, jobs, memory, terms.metric, gate=gate, many=jobs.many, width=place.width)
        else:
            trees = [
                stack.enter_context(own_tree(line, f"trial-{number}"))
                for number in range(min(cores(), max(COMPILERS, place.width)))
            ]
            yield _local(regression, line, place, stack.enter_context(bench), trees)


def _terms(regression: Regression, line: Line, place: Place) -> ProbeTask:
    """What all jobs have in common."""
    variant = place.target.variants[regression.variant]
    if regression.emulated:
        variant = place.target.emulation(regression.variant)
    return ProbeTask(
        variant=regression.variant,
        metric="correctness" if regression.metric == "correctness" else "latency",
        emulated=regression.emulated,
        compiler=variant.build.compiler if isinstance(variant, CAbiVariant) else "",
        device=place.device,
        threads=place.threads,
        workloads=regression.workloads,
        seed=place.seed,
        candidate=line.candidates[-1],
        against=line.good,
        count=0,
    )


def _local(regression: Regression, line: Line, place: Place, bench: Bench, trees: list[Worktree]) -> Hunt:
    """The search on this machine."""
    variant, resources = regression.variant, regression.metric == "resources"
    architecture = bench.architecture if resources else ""
    make = functools.partial(Builder, bench, trees, variant, BUILD_LIMIT_S, line.good, inside=line.inside)
    builder = make(emulated=regression.emulated, architecture=architecture)
    if resources:
        today = bench.target.variants[variant]
        assert isinstance(today, CAbiVariant)
        emulator = make(emulated=True) if today.emulation else None
        taking = ResourceProbe(builder, emulator, line.good, line.candidates[-1], calls_of(bench.target, today))
        # Builds are in the cache, and to look at one costs next to nothing.
        return Hunt(line, taking, ProbeMemory(None), "correctness", width=len(trees))
    where = machine().processor if bench.device == "cpu" else ", ".join(machine().gpus[:1])
    emulated = ["emulated"] if regression.emulated else []
    asked = (str(bench.folder), variant, where, str(bench.threads), *emulated)
    wrong = regression.metric == "correctness"
    prober = (CorrectnessProbe if wrong else LatencyProbe)(bench, builder, regression.workloads, place.seed)
    gate = FailingGate(prober, asked) if isinstance(prober, CorrectnessProbe) else SpeedGate(prober, asked)
    return Hunt(
        line,
        prober,
        gate.memory(),
        "correctness" if wrong else "latency",
        gate=gate,
        builder=builder,
        device=bench,
        width=len(trees),
    )


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
