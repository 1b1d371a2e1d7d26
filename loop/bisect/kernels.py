"""A search for what made a kernel slower or wrong: its worktree, its probe, its memory."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from loop.base.places import state_folder
from loop.bisect.builds import Builder
from loop.bisect.candidates import Line
from loop.bisect.gate import FailingGate, SpeedGate
from loop.bisect.hunt import Hunt
from loop.bisect.model import Metric
from loop.bisect.trying import CorrectnessProbe, LatencyProbe
from loop.machine.machine import machine
from loop.model.target import Workload
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.workers.bench import Bench

BUILD_LIMIT_S = 600.0
SAID: dict[Metric, str] = {"latency": "is slower", "correctness": "is wrong"}


@dataclass(frozen=True)
class Regression:
    """What the gate says against a variant."""

    variant: str
    metric: Metric
    workloads: tuple[Workload, ...] = ()
    """Where it shows."""
    emulated: bool = False

    @property
    def what(self) -> str:
        """`split_k is wrong under the emulator`."""
        return f"{self.variant} {SAID[self.metric]}{' under the emulator' if self.emulated else ''}"


@contextlib.contextmanager
def kernel_hunt(regression: Regression, line: Line, bench: Bench, seed: int) -> Iterator[Hunt]:
    """The search on today's workloads."""
    variant, emulated = regression.variant, regression.emulated
    where = machine().processor if bench.device == "cpu" else ", ".join(machine().gpus[:1])
    asked = (str(bench.folder), variant, where, str(bench.threads), *(["emulated"] if emulated else []))
    with own_tree(line) as tree:
        builder = Builder(bench, tree, variant, BUILD_LIMIT_S, line.good, emulated=emulated, inside=line.inside)
        gate: FailingGate | SpeedGate
        prober: CorrectnessProbe | LatencyProbe
        if regression.metric == "correctness":
            prober = CorrectnessProbe(bench, builder, regression.workloads, seed)
            gate = FailingGate(prober, asked)
        else:
            prober = LatencyProbe(bench, builder, regression.workloads, seed)
            gate = SpeedGate(prober, asked)
        yield Hunt(line, prober, gate.memory(), regression.metric, gate=gate, builder=builder, device=bench)


@contextlib.contextmanager
def own_tree(line: Line) -> Iterator[Worktree]:
    """A worktree for the time of a search; those of processes that were killed are taken away first."""
    root = state_folder() / "worktrees"
    for left in root.glob("bisect-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    tree = worktree.make_at(line.folder, root / f"bisect-{os.getpid()}", line.good.commit)
    try:
        yield tree
    finally:
        worktree.remove(tree)
