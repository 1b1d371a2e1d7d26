"""The points of a search over values: compiled, verified, timed beside the values that run now."""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from loop.base.documents import content_hash
from loop.base.processes import Tick, together
from loop.base.stats import geometric_mean
from loop.builds import build
from loop.builds.compiler_errors import BuildFailed
from loop.debug.turns import lost_points, point
from loop.gate.verify import Job
from loop.gate.verify import verify as verify_sides
from loop.machine.machine import cores
from loop.model.change import TriedPoint, TuneOutput
from loop.model.measurement import Build
from loop.model.target import Workload
from loop.model.tuning import Tuning, Values
from loop.model.workloads import expand
from loop.optimize.session_changes import tuning_set
from loop.steps.context import Context
from loop.timing import samples, schedule
from loop.timing.round import Untimed
from loop.timing.samples import Timings
from loop.timing.terms import Terms
from loop.workers.bench import Bench, Side

TOGETHER = 6
"""Points that are timed beside the incumbent at a time: each side has a process."""
INCUMBENT = "incumbent"


@dataclass
class PointSearch:
    """One search: what is tuned, where it is built, and what became of each point so far."""

    context: Context
    bench: Bench
    name: str
    tuning: Tuning
    device: str
    trials: list[TriedPoint] = field(default_factory=list)
    sides: dict[str, tuple[Values, Side]] = field(default_factory=dict)
    """Points that may still win, by label."""
    ground: str = ""
    """What a point has to stand on for an earlier search to tell of it; empty before the compiler was asked."""

    @property
    def incumbent(self) -> Values:
        """The values that run now."""
        values = self.tuning.best_on(self.device)
        assert values is not None
        return values

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """What the points are verified and timed on."""
        target = self.bench.target
        return expand(target, [tuning_set(self.name)], target.dtypes[self.bench.device], self.context.task.seed)

    def drop(self, label: str, outcome: str, reason: str) -> None:
        """A point is out of the search."""
        values, _ = self.sides.pop(label)
        self.lost(values, outcome, reason)

    def lost(self, values: Values, outcome: str, reason: str) -> None:
        """What became of a point that was not timed."""
        fields = {"tuning": self.name, "values": values, "outcome": outcome, "reason": reason}
        self.trials.append(TriedPoint.model_validate(fields))


def device_of(context: Context) -> str:
    """The device by the name under which its best values stand."""
    return "cpu" if context.bench.device == "cpu" else context.bench.architecture


def label_of(values: Values) -> str:
    """`rows 64, held true`."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in values.items())


def nothing_to_beat(search: PointSearch) -> TuneOutput:
    """What to say where the values that run now do not compile, or are wrong."""
    why = next(trial.reason for trial in search.trials if trial.values == search.incumbent)
    return TuneOutput(
        ok=False,
        message=f"{search.name}: what runs now ({label_of(search.incumbent)}) is not right: {why}",
        hint=f"mend it, or change tuning.{search.name}.best: nothing can be held against it",
        trials=tuple(search.trials),
    )


def compile_points(search: PointSearch) -> Generator[Tick, None, None]:
    """Every point that has not lost before, and the incumbent; a compiler a core runs at a time."""
    search.ground = yield from _ground(search)
    lost = (
        {} if search.context.task.again else lost_points(search.context.past.searches, search.name, search.ground)
    )
    points = [search.incumbent]
    for values in search.tuning.points:
        if values != search.incumbent and point(values) in lost:
            search.lost(values, "lost", lost[point(values)])
        elif values != search.incumbent:
            points.append(values)
    attempts = yield from together((_attempt(search, values) for values in points), cores())
    for values, attempt in zip(points, attempts, strict=True):
        label = INCUMBENT if values == search.incumbent else label_of(values)
        if isinstance(attempt, BuildFailed):
            search.lost(values, "refused", attempt.message)
        else:
            search.sides[label] = (values, search.bench.side(search.tuning.variant, attempt).renamed(label))


def _ground(search: PointSearch) -> Generator[Tick, None, str]:
    """Hash of sources, recipe, toolchain and workloads, whatever the values; empty where the compiler refuses."""
    bench, tuning = search.bench, search.tuning
    variant = bench.target.compiled(tuning.variant, bench.architecture)
    try:
        digest = yield from build.ground(
            tuning.variant, variant, bench.folder, tuning.defines(search.incumbent), cache=bench.cache,
            include=bench.include, limit_s=search.context.kill_after_s,
        )  # fmt: skip
    except BuildFailed:
        return ""
    return content_hash("\0".join([digest, *(workload.name for workload in search.workloads)]))[:32]


def _attempt(search: PointSearch, values: Values) -> Generator[Tick, None, Build | BuildFailed]:
    bench, tuning = search.bench, search.tuning
    tuned = tuning.model_copy(update={"best": {search.device: values}})
    target = bench.target.model_copy(update={"tuning": {**bench.target.tuning, search.name: tuned}})
    variant = target.compiled(tuning.variant, bench.architecture)
    limit_s = search.context.kill_after_s
    try:
        return (
            yield from build.build(
                tuning.variant, variant, bench.folder, cache=bench.cache, include=bench.include, limit_s=limit_s
            )
        )
    except BuildFailed as failed:
        return failed


def verify(search: PointSearch) -> Generator[Tick, None, None]:
    """Points that are wrong, hang or crash are out."""
    for labels in _chunks(list(search.sides)):
        jobs = [Job(search.sides[label][1], search.workloads, layouts=False, enough=True) for label in labels]
        for label, checks in zip(labels, (yield from verify_sides(search.bench, jobs)), strict=True):
            if checks.first_failure:
                search.drop(label, "wrong", checks.first_failure.message)


def timed(search: PointSearch, labels: Sequence[str], rounds: int) -> Generator[Tick, None, dict[str, TriedPoint]]:
    """Points beside the incumbent, a few at a time."""
    trials: dict[str, TriedPoint] = {}
    for some in _chunks(labels):
        trials |= yield from _time(search, some, rounds)
    return trials


def _time(search: PointSearch, labels: Sequence[str], rounds: int) -> Generator[Tick, None, dict[str, TriedPoint]]:
    """Points beside the incumbent; where one of them cannot be timed, each by itself, so that it alone is out."""
    try:
        return (yield from _time_together(search, labels, rounds))
    except Untimed as error:
        if error.side not in labels:
            raise
        if len(labels) == 1:
            search.drop(labels[0], "wrong", error.message)
            return {}
    trials: dict[str, TriedPoint] = {}
    for label in labels:
        trials |= yield from _time(search, [label], rounds)
    return trials


def _time_together(
    search: PointSearch, labels: Sequence[str], rounds: int
) -> Generator[Tick, None, dict[str, TriedPoint]]:
    """Points beside the incumbent: the mean ratio over the workloads, and the lowest."""
    sides = [search.sides[label][1] for label in (INCUMBENT, *labels)]
    terms = Terms(rounds, search.context.budget_s, search.context.task.seed)
    timings = yield from schedule.measure(search.bench, sides, search.workloads, terms)
    for label, check in timings.wrong:
        if label in labels and label in search.sides:
            search.drop(label, "wrong", f"while it was timed: {check.message}")
    return {label: _trial(search, timings, label) for label in labels if label in search.sides}


def _trial(search: PointSearch, timings: Timings, label: str) -> TriedPoint:
    """The mean ratio to the incumbent over the workloads, and the lowest."""
    values, _ = search.sides[label]
    logs = [samples.log_ratios(timings.of(load.name), INCUMBENT, label) for load in search.workloads]
    ratios = [math.exp(fmean(of_workload)) for of_workload in logs if of_workload]
    if not ratios:
        return TriedPoint(tuning=search.name, values=values, outcome="timed", reason="no round of it was sound")
    mean, worst = geometric_mean(ratios), min(ratios)
    return TriedPoint(tuning=search.name, values=values, outcome="timed", ratio=mean, worst=worst)


def _chunks(labels: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(labels), TOGETHER):
        yield labels[begin : begin + TOGETHER]
