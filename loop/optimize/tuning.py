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
from loop.base.stats import geometric_mean
from loop.builds import build
from loop.builds.compiler_errors import BuildFailed
from loop.debug.turns import lost_points, point
from loop.gate.kernel import extra_sets
from loop.gate.verify import Job, verify
from loop.library.definitions import read_file
from loop.library.tuned import with_best
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.change import Brief, TriedPoint, TuneOutput
from loop.model.measurement import Build
from loop.model.output import outputs_of
from loop.model.pattern import Identifier
from loop.model.target import Target, Workload
from loop.model.tuning import Tuning, Values
from loop.model.workloads import expand
from loop.optimize.briefing import rule
from loop.optimize.edits import handed_back
from loop.optimize.session_changes import SessionChanges, own_tree, tuning_set, with_tuning_set, workshop
from loop.repository import worktree
from loop.repository.leftover import note_owner
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, Working
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.timing.round import Untimed
from loop.timing.samples import Timings
from loop.timing.terms import Terms
from loop.workers.bench import Bench, Side

TOGETHER = 6
"""Points that are timed beside the incumbent at a time: each side has a process."""
INCUMBENT = "incumbent"


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


@dataclass
class Search:
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
        found = self.tuning.best_on(self.device)
        assert found is not None
        return found

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


def tune(context: Context, arguments: TuneTerms) -> Working[TuneOutput]:
    """Search one thing that may be tuned; which one is the next that this session has not searched yet."""
    left = open_searches(context, arguments.only)
    if not left:
        return Result(TuneOutput(ok=True, message=f"nothing {'more ' if searched(context) else ''}to tune here"))
    shop = workshop(context)
    refusal = _too_many(context.bench.target, left[0], arguments.most)
    if refusal is not None:
        return Result(refusal)
    yield Tick("preparing the worktree")
    tree = own_tree(context, shop) or worktree.make(context.task.folder, shop.tree)
    note_owner(tree, shop.notes.parent)
    target = with_tuning_set(read_file(tree.target / MANIFEST, Target).value, left[0])
    with context.bench.at(tree.target, target) as bench:
        search = Search(context, bench, left[0], target.tuning[left[0]], device_of(context))
        yield from _compile(search)
        yield from _verify(search)
        if INCUMBENT not in search.sides:
            return Result(_nothing_to_beat(search))
        best = yield from _race(search, arguments)
    return Result(_proposed(search, best, tree, arguments))


def open_searches(context: Context, only: str | None) -> list[str]:
    """Names of what may be tuned on this device for the session's variants, and was not searched yet."""
    done, target = searched(context), context.bench.target
    return [
        name
        for name, one in target.tuning.items()
        if name not in done
        and only in (None, name)
        and one.variant in context.task.variants
        and target.variants[one.variant].device == context.bench.device
        and one.best_on(device_of(context)) is not None
    ]


def _too_many(target: Target, name: str, most: int) -> TuneOutput | None:
    """What to say of a thing with more points than may be tried; None where it has few enough."""
    number = target.tuning[name].size
    if number <= most:
        return None
    return TuneOutput(
        ok=False,
        message=f"{name} has {number} points, and at most {most} are tried",
        hint=f"shorten the lists in tuning.{name}.values, or raise `most` in a pattern `tuning` of your own",
    )


def _nothing_to_beat(search: Search) -> TuneOutput:
    """What to say where the values that run now do not compile, or are wrong."""
    why = next(one.reason for one in search.trials if one.values == search.incumbent)
    return TuneOutput(
        ok=False,
        message=f"{search.name}: what runs now ({label_of(search.incumbent)}) is not right: {why}",
        hint=f"mend it, or change tuning.{search.name}.best: nothing can be held against it",
        trials=tuple(search.trials),
    )


def searched(context: Context) -> set[str]:
    """Names of what this session has searched."""
    return {trial.tuning for one in outputs_of(context.finished, TuneOutput) for trial in one.trials}


def device_of(context: Context) -> str:
    """The device by the name under which its best values stand."""
    return "cpu" if context.bench.device == "cpu" else context.bench.architecture


def label_of(values: Values) -> str:
    """`rows 64, held true`."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in values.items())


def _compile(search: Search) -> Generator[Tick, None, None]:
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
    for values, made in zip(points, attempts, strict=True):
        label = INCUMBENT if values == search.incumbent else label_of(values)
        if isinstance(made, BuildFailed):
            search.lost(values, "refused", made.message)
        else:
            search.sides[label] = (values, search.bench.side(search.tuning.variant, made).renamed(label))


def _ground(search: Search) -> Generator[Tick, None, str]:
    """Hash of sources, recipe, toolchain and workloads, whatever the values; empty where the compiler refuses."""
    bench, one = search.bench, search.tuning
    variant = bench.target.compiled(one.variant, bench.architecture)
    try:
        made = yield from build.ground(
            one.variant, variant, bench.folder, one.defines(search.incumbent), cache=bench.cache,
            include=bench.include, limit_s=search.context.kill_after_s,
        )  # fmt: skip
    except BuildFailed:
        return ""
    return content_hash("\0".join([made, *(workload.name for workload in search.workloads)]))[:32]


def _attempt(search: Search, values: Values) -> Generator[Tick, None, Build | BuildFailed]:
    bench, one = search.bench, search.tuning
    tuned = one.model_copy(update={"best": {search.device: values}})
    target = bench.target.model_copy(update={"tuning": {**bench.target.tuning, search.name: tuned}})
    variant = target.compiled(one.variant, bench.architecture)
    limit_s = search.context.kill_after_s
    try:
        return (
            yield from build.build(
                one.variant, variant, bench.folder, cache=bench.cache, include=bench.include, limit_s=limit_s
            )
        )
    except BuildFailed as failed:
        return failed


def _verify(search: Search) -> Generator[Tick, None, None]:
    """Points that are wrong, hang or crash are out."""
    for labels in _chunks(list(search.sides)):
        jobs = [Job(search.sides[label][1], search.workloads, layouts=False, enough=True) for label in labels]
        for label, checks in zip(labels, (yield from verify(search.bench, jobs)), strict=True):
            if checks.first_failure:
                search.drop(label, "wrong", checks.first_failure.message)


def _race(search: Search, arguments: TuneTerms) -> Generator[Tick, None, TriedPoint | None]:
    """Time what is left beside the incumbent, the fastest of it once more; the best, if it beats the incumbent."""
    with ExitStack() as stack:
        yield from hold_device(search.context.bench, stack)
        rivals = [label for label in search.sides if label != INCUMBENT]
        found: dict[str, TriedPoint] = {}
        for labels in _chunks(rivals):
            found |= yield from _time(search, labels, arguments.rounds)
        fastest = sorted(found, key=lambda label: -(found[label].ratio or 0))[: arguments.finalists]
        if fastest:
            found |= yield from _time(search, fastest, 3 * arguments.rounds)
    left = [one for label, one in found.items() if label in search.sides]
    timed = sorted(left, key=lambda one: -(one.ratio or 0))
    best = timed[0] if timed and (timed[0].ratio or 0) > 1 else None
    search.trials += [one.model_copy(update={"outcome": "best"}) if one is best else one for one in timed]
    return best


def _time(search: Search, labels: Sequence[str], rounds: int) -> Generator[Tick, None, dict[str, TriedPoint]]:
    """Points beside the incumbent; where one of them cannot be timed, each by itself, so that it alone is out."""
    try:
        return (yield from _time_together(search, labels, rounds))
    except Untimed as error:
        if error.side not in labels:
            raise
        if len(labels) == 1:
            search.drop(labels[0], "wrong", error.message)
            return {}
    found: dict[str, TriedPoint] = {}
    for label in labels:
        found |= yield from _time(search, [label], rounds)
    return found


def _time_together(
    search: Search, labels: Sequence[str], rounds: int
) -> Generator[Tick, None, dict[str, TriedPoint]]:
    """Points beside the incumbent: the mean ratio over the workloads, and the lowest."""
    sides = [search.sides[label][1] for label in (INCUMBENT, *labels)]
    terms = Terms(rounds, search.context.budget_s, search.context.task.seed)
    timings = yield from schedule.measure(search.bench, sides, search.workloads, terms)
    for label, check in timings.wrong:
        if label in labels and label in search.sides:
            search.drop(label, "wrong", f"while it was timed: {check.message}")
    right = [label for label in labels if label in search.sides]
    return {label: _trial(search, label, list(_ratios(search, timings, label))) for label in right}


def _ratios(search: Search, timings: Timings, label: str) -> Iterator[float]:
    for workload in search.workloads:
        logs = samples.log_ratios(timings.of(workload.name), INCUMBENT, label)
        if logs:
            yield math.exp(fmean(logs))


def _trial(search: Search, label: str, ratios: Sequence[float]) -> TriedPoint:
    values, _ = search.sides[label]
    if not ratios:
        return TriedPoint(tuning=search.name, values=values, outcome="timed", reason="no round of it was sound")
    mean, worst = geometric_mean(ratios), min(ratios)
    return TriedPoint(tuning=search.name, values=values, outcome="timed", ratio=mean, worst=worst)


def _chunks(labels: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(labels), TOGETHER):
        yield labels[begin : begin + TOGETHER]


def _proposed(search: Search, best: TriedPoint | None, tree: Worktree, arguments: TuneTerms) -> TuneOutput:
    """The best point as an edit of the manifest; none where the incumbent is as good."""
    incumbent = TriedPoint(tuning=search.name, values=search.incumbent, outcome="incumbent", ratio=1.0, worst=1.0)
    trials = (incumbent, *search.trials)
    counts = _counted(search)
    if best is None or best.ratio is None or best.ratio < 1 + arguments.gain:
        message = f"{search.name}: the incumbent stays ({label_of(search.incumbent)}); {counts}"
        return TuneOutput(
            ok=True, message=message, trials=trials, ground=search.ground, learned=(f"Tuning {message}.",)
        )
    manifest = tree.target / MANIFEST
    manifest.write_text(with_best(manifest.read_text(), search.name, search.device, best.values))
    asked = _brief(search, best, tree, arguments)
    back = handed_back(workshop(search.context), asked, tree.changed(), tree)
    message = f"{search.name}: {label_of(best.values)} looks {best.ratio:.3f}x as fast as now; {counts}"
    fields = {**dict(back), "message": message, "trials": trials, "ground": search.ground}
    return TuneOutput(**fields)


def _counted(search: Search) -> str:
    """How the other points fared."""
    words = [one.outcome for one in search.trials]
    names = {"lost": "lost before (--again tries them)", "refused": "did not compile", "wrong": "went wrong"}
    counted = [f"{words.count(word)} {text}" for word, text in names.items() if word in words]
    timed = [one.ratio for one in search.trials if one.outcome in ("timed", "best")]
    if timed:
        sound = [ratio for ratio in timed if ratio is not None]
        best = f"the best of them at {max(sound):.3f}x" if sound else "and no round of them was sound"
        counted.append(f"{len(timed)} {'was' if len(timed) == 1 else 'were'} timed, {best}")
    others = search.tuning.size - (search.incumbent in search.tuning.points)
    return f"of {others} others {', '.join(counted)}" if counted else "there is no other point"


def _brief(search: Search, best: TriedPoint, tree: Worktree, arguments: TuneTerms) -> Brief:
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
        timed=tuple(one.name for one in search.workloads),
        checks=(*context.task.plan.workloads, *extra_sets(context)),
        resume=shop.resume,
        decline=f"{shop.resume} --decline",
        tuning=search.name,
    )
