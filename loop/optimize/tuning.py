"""The built-in proposer: search the values that a target says may be tuned, under the gate, and propose the best.

Every point is compiled, those that compile are verified, those that are right are timed beside the incumbent. The
fastest becomes an edit of the manifest in the session's worktree, and is judged as any other change is.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated

from pydantic import Field

from loop.base.documents import content_hash
from loop.base.places import MANIFEST
from loop.base.processes import Tick, together
from loop.base.stats import geometric_mean, times
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.debug.turns import lost_points, point
from loop.gate.kernel import extra_sets
from loop.gate.verify import Job
from loop.gate.verify import verify as verify_sides
from loop.library.definitions import read_file
from loop.library.tuned import with_best
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.change import Brief, BriefOutput, TriedPoint
from loop.model.measurement import Build
from loop.model.output import outputs_of
from loop.model.plan import Identifier
from loop.model.target import Target, Tuning, Values, Workload
from loop.model.workloads import expand
from loop.optimize.briefing import rule
from loop.optimize.edits import handed_back
from loop.optimize.session_changes import SessionChanges, own_tree, tuning_set, with_tuning_set, workshop
from loop.repository import worktree
from loop.repository.worktree import Worktree, note_owner
from loop.steps.context import Context, Result, Working
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.timing.samples import Terms, Timings
from loop.timing.schedule import Untimed
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


def nothing_to_beat(search: PointSearch) -> BriefOutput:
    """What to say where the values that run now do not compile, or are wrong."""
    why = next(trial.reason for trial in search.trials if trial.values == search.incumbent)
    return BriefOutput(
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


class TuneTerms(Model):
    """How far the search goes."""

    only: Identifier | None = None
    """The one thing to be tuned; default: each in its turn."""
    finalists: Annotated[int, Field(ge=1, le=20)] = 3
    """Points that are timed a second time, longer."""
    rounds: Annotated[int, Field(ge=2, le=50)] = 3
    """Fresh processes of each point in the first pass; finalists get three times as many."""
    gain: Annotated[float, Field(ge=0, le=10)] = 0.01
    """Share by which the best has to be faster than the incumbent to be proposed."""
    most: Annotated[int, Field(ge=2)] = 200
    """Points that one thing may have: a search of more is refused before anything is compiled."""


def tune(context: Context, arguments: TuneTerms) -> Working[BriefOutput]:
    """Search one thing that may be tuned; which one is the next that this session has not searched yet."""
    searches = open_searches(context, arguments.only)
    if not searches:
        return Result(BriefOutput(ok=True, message=f"nothing {'more ' if searched(context) else ''}to tune here"))
    shop = workshop(context)
    refusal = _too_many(context.bench.target, searches[0], arguments.most)
    if refusal is not None:
        return Result(refusal)
    yield Tick("preparing the worktree")
    tree = own_tree(context, shop) or worktree.make(context.task.folder, shop.tree)
    note_owner(tree, shop.notes.parent)
    target = with_tuning_set(read_file(tree.target / MANIFEST, Target).value, searches[0])
    with context.bench.at(tree.target, target) as bench:
        search = PointSearch(context, bench, searches[0], target.tuning[searches[0]], device_of(context))
        yield from compile_points(search)
        yield from verify(search)
        best = (yield from _race(search, arguments)) if INCUMBENT in search.sides else None
        if INCUMBENT not in search.sides:
            return Result(nothing_to_beat(search))
    return Result(_proposed(search, best, tree, arguments))


def open_searches(context: Context, only: str | None) -> list[str]:
    """Names of what may be tuned on this device for the session's variants, and was not searched yet."""
    done, target = searched(context), context.bench.target
    return [
        name
        for name, tuning in target.tuning.items()
        if name not in done
        and only in (None, name)
        and tuning.variant in context.task.variants
        and target.variants[tuning.variant].device == context.bench.device
        and tuning.best_on(device_of(context)) is not None
    ]


def _too_many(target: Target, name: str, most: int) -> BriefOutput | None:
    """What to say of a thing with more points than may be tried; None where it has few enough."""
    number = target.tuning[name].size
    if number <= most:
        return None
    return BriefOutput(
        ok=False,
        message=f"{name} has {number} points, and at most {most} are tried",
        hint=f"shorten the lists in tuning.{name}.values, or raise `most` in a pattern `tuning` of your own",
    )


def searched(context: Context) -> set[str]:
    """Names of what this session has searched."""
    return {trial.tuning for output in outputs_of(context.finished, BriefOutput) for trial in output.trials}


def _race(search: PointSearch, arguments: TuneTerms) -> Generator[Tick, None, TriedPoint | None]:
    """Time what is left beside the incumbent, the fastest of it once more; the best, if it beats the incumbent."""
    with ExitStack() as stack:
        yield from hold_device(search.context.bench, stack)
        rivals = [label for label in search.sides if label != INCUMBENT]
        trials = yield from timed(search, rivals, arguments.rounds)
        fastest = sorted(trials, key=lambda label: -(trials[label].ratio or 0))[: arguments.finalists]
        if fastest:
            trials |= yield from timed(search, fastest, 3 * arguments.rounds)
    fresh = [trial for label, trial in trials.items() if label in search.sides]
    by_ratio = sorted(fresh, key=lambda trial: -(trial.ratio or 0))
    best = by_ratio[0] if by_ratio and (by_ratio[0].ratio or 0) > 1 else None
    search.trials += [
        trial.model_copy(update={"outcome": "best"}) if trial is best else trial for trial in by_ratio
    ]
    return best


def _proposed(search: PointSearch, best: TriedPoint | None, tree: Worktree, arguments: TuneTerms) -> BriefOutput:
    """The best point as an edit of the manifest; none where the incumbent is as good."""
    incumbent = TriedPoint(tuning=search.name, values=search.incumbent, outcome="incumbent", ratio=1.0, worst=1.0)
    trials = (incumbent, *search.trials)
    counts = _counted(search)
    if best is None or best.ratio is None or best.ratio < 1 + arguments.gain:
        message = f"{search.name}: the incumbent stays ({label_of(search.incumbent)}); {counts}"
        return BriefOutput(
            ok=True, message=message, trials=trials, ground=search.ground, learned=(f"Tuning {message}.",)
        )
    manifest = tree.target / MANIFEST
    manifest.write_text(with_best(manifest.read_text(), search.name, search.device, best.values))
    brief = _brief(search, best, tree, arguments)
    back = handed_back(workshop(search.context), brief, tree.changed(), tree)
    message = f"{search.name}: {label_of(best.values)} looks {times(best.ratio, 3)} as fast as now; {counts}"
    fields = {**dict(back), "message": message, "trials": trials, "ground": search.ground}
    return BriefOutput(**fields)


def _counted(search: PointSearch) -> str:
    """How the other points fared."""
    words = [trial.outcome for trial in search.trials]
    names = {"lost": "lost before (--again tries them)", "refused": "did not compile", "wrong": "went wrong"}
    counted = [f"{words.count(word)} {text}" for word, text in names.items() if word in words]
    timed = [trial.ratio for trial in search.trials if trial.outcome in ("timed", "best")]
    if timed:
        sound = [ratio for ratio in timed if ratio is not None]
        best = f"the best of them at {times(max(sound), 3)}" if sound else "and no round of them was sound"
        counted.append(f"{len(timed)} {'was' if len(timed) == 1 else 'were'} timed, {best}")
    others = search.tuning.size - (search.incumbent in search.tuning.points)
    return f"of {others} others {', '.join(counted)}" if counted else "there is no other point"


def _brief(search: PointSearch, best: TriedPoint, tree: Worktree, arguments: TuneTerms) -> Brief:
    shop, context = workshop(search.context), search.context
    return Brief(
        number=SessionChanges(context.finished).number,
        variant=search.tuning.variant,
        title=f"{search.tuning.title}: {label_of(best.values)}",
        workload=search.workloads[0].name,
        profile=None,
        folder=str(tree.target),
        files=(MANIFEST,),
        rule=rule(arguments.gain),
        timed=tuple(workload.name for workload in search.workloads),
        checks=(*context.task.plan.workloads, *extra_sets(context)),
        resume=shop.resume,
        decline=f"{shop.resume} --decline",
        tuning=search.name,
    )
