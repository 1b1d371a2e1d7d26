"""The built-in proposer: search the values listed in a target's `tuning`, and propose the best.

Each point (one choice of values) is compiled, verified, and timed next to the incumbent. The best
is an edit of the manifest in the session's worktree; the gate judges it like any change. Only here
`loop` edits YAML: everything outside `best` is unchanged, including comments and order.
"""

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import fmean, geometric_mean
from typing import Any

import yaml

from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.base.processes import Tick, Waiting, run_side_by_side
from loop.builds import build
from loop.gate.kernel import planned_check_sets
from loop.gate.verify import Job, verify
from loop.library.definitions import read_file
from loop.machine.machine import cores
from loop.model.measurement import Build
from loop.model.output import outputs_of
from loop.model.target import Target, Tuning, Values, Workload, literal_text
from loop.model.workloads import expand_sets
from loop.optimize import session_changes
from loop.optimize.briefing import KEEPING_RULE, GainTerms
from loop.optimize.model import Brief, BriefOutput, TriedPoint
from loop.optimize.session_changes import save_edit
from loop.report.format import speedup_text
from loop.repository.worktree import Worktree, make_from_checkout
from loop.steps.context import Context, Result, RunningAction
from loop.timing import samples, schedule
from loop.timing.readiness import hold_device
from loop.workers.bench import Bench, Side

GROUP_SIZE = 6  # Points timed next to the incumbent at the same time: each has a process.
INCUMBENT = "incumbent"
FINALISTS, ROUNDS, MOST_POINTS = 3, 3, 200  # Timed again, 3x as long; first rounds; most points.


def point_label(values: Values) -> str:
    """A point (one choice of tuning values) in words: `rows 64, held true`."""
    return ", ".join(f"{name} {str(value).lower()}" for name, value in values.items())


@dataclass
class PointSearch:
    """One search: its `tuning` entry, its target, and the outcome of each point so far."""

    context: Context
    bench: Bench
    name: str
    tuning: Tuning
    device: str
    incumbent: Values  # The values in use now.
    trials: dict[str, TriedPoint] = field(default_factory=dict)  # Label to the outcome so far.
    sides: dict[str, Side] = field(default_factory=dict)  # Of points that may win, by label.
    workloads: tuple[Workload, ...] = ()  # Those that points are verified and timed on.

    @property
    def points(self) -> dict[str, Values]:
        """Label to values of each point, the incumbent first."""
        others = [values for values in self.tuning.points if values != self.incumbent]
        return {INCUMBENT: self.incumbent, **{point_label(values): values for values in others}}

    def record(self, label: str, outcome: Any, **fields: Any) -> None:
        """Note the outcome of a point; failed ones leave the search. `fields`: of `TriedPoint`."""
        values = self.points[label]
        self.trials[label] = TriedPoint(tuning=self.name, values=values, outcome=outcome, **fields)
        if outcome in ("refused", "wrong"):
            self.sides.pop(label, None)

    def ranking(self) -> list[str]:
        """Labels of all points still in the search but the incumbent, the fastest first."""
        ratios = {label: trial.ratio or 0.0 for label, trial in self.trials.items()}
        others = (label for label in self.sides if label != INCUMBENT)
        return sorted(others, key=lambda label: -ratios.get(label, 0.0))

    def compile(self) -> Waiting[None]:
        """Compile the incumbent and every point, one compiler a core; drop those that fail."""
        bench, tuning, context = self.bench, self.tuning, self.context
        places: dict[str, Any] = {"cache": bench.cache, "include": bench.include}
        places["limit_s"] = context.kill_after_s
        recipes: dict[str, Any] = {}  # By label.
        for label, values in self.points.items():
            chosen = tuning.model_copy(update={"best": {self.device: values}})
            tunings = {**bench.target.tuning, self.name: chosen}
            target = bench.target.model_copy(update={"tuning": tunings})
            recipes[label] = target.compiled_variant(tuning.variant, bench.architecture)

        def build_or_failure(recipe: Any) -> Waiting[Build | build.BuildFailed]:
            try:
                return (yield from build.build(tuning.variant, recipe, bench.folder, **places))
            except build.BuildFailed as failed:
                return failed

        builds = yield from run_side_by_side(map(build_or_failure, recipes.values()), cores())
        for label, build_or_error in zip(recipes, builds, strict=True):
            if isinstance(build_or_error, build.BuildFailed):
                self.record(label, "refused", reason=build_or_error.message)
            else:
                side = bench.make_side(tuning.variant, build_or_error)
                self.sides[label] = replace(side, name=label)

    def verify(self) -> Waiting[None]:
        """Remove the points whose outputs are wrong, or that hang or crash."""
        labels = list(self.sides)
        for begin in range(0, len(labels), GROUP_SIZE):
            group = labels[begin : begin + GROUP_SIZE]
            sides = [self.sides[label] for label in group]
            jobs = [Job(side, self.workloads, layouts=False, fail_fast=True) for side in sides]
            for label, checks in zip(group, (yield from verify(self.bench, jobs)), strict=True):
                if checks.first_failure:
                    self.record(label, "wrong", reason=checks.first_failure.message)

    def time_points(self, labels: Sequence[str], rounds: int) -> Waiting[None]:
        """Time points next to the incumbent, a few at a time, for their mean and lowest ratio over
        workloads. One that cannot be timed is removed, and its group timed again."""
        limits = samples.Limits(rounds, self.context.budget_s, self.context.task.seed)
        untimed = list(labels)
        while untimed:
            group = untimed[:GROUP_SIZE]
            sides = [self.sides[label] for label in (INCUMBENT, *group)]
            try:
                timings = yield from schedule.measure(self.bench, sides, self.workloads, limits)
            except schedule.Untimed as error:
                if error.side not in group:
                    raise
                self.record(error.side, "wrong", reason=error.message)
                untimed.remove(error.side)
                continue
            untimed = untimed[GROUP_SIZE:]
            for label, check in timings.wrong_outputs:
                if label in group and label in self.sides:
                    self.record(label, "wrong", reason=f"while it was timed: {check.message}")
            for label in self.sides.keys() & {*group}:
                ratios = []
                for workload in self.workloads:
                    logs = samples.log_ratios(timings.segments_of(workload.name), INCUMBENT, label)
                    ratios += [math.exp(fmean(logs))] if logs else []
                if ratios:
                    self.record(label, "timed", ratio=geometric_mean(ratios), worst=min(ratios))
                else:
                    self.record(label, "timed", reason="no round of it was sound")


def tune(context: Context, arguments: GainTerms) -> RunningAction[BriefOutput]:
    """Search the next `tuning` entry not searched yet; its best values, if faster, are the edit."""
    outputs = outputs_of(context.finished, BriefOutput)
    searched = {trial.tuning for output in outputs for trial in output.trials}
    target, device = context.bench.target, context.bench.device
    device_name = "cpu" if device == "cpu" else context.bench.architecture  # Key of `best`.
    name, incumbent, workshop = "", None, session_changes.workshop_of(context)
    for name, tuning in target.tuning.items():
        is_wanted = tuning.variant in context.task.variants and name not in searched
        if is_wanted and target.variants[tuning.variant].device == device:
            incumbent = tuning.best_on(device_name)
        if incumbent is not None:
            break
    if incumbent is None:
        message = f"nothing {'more ' if searched else ''}to tune here"
        return Result(BriefOutput(ok=True, message=message), idle=True)
    count = math.prod(map(len, target.tuning[name].values.values()))
    if count > MOST_POINTS:
        message = f"{name} has {count} points, and at most {MOST_POINTS} are tried"
        hint = f"shorten the lists in tuning.{name}.values"
        return Result(BriefOutput(ok=False, message=message, hint=hint))
    yield Tick("preparing the worktree")
    tree = session_changes.session_worktree(context, workshop)
    if tree is None:
        tree = make_from_checkout(context.task.folder, workshop.worktree)
    tree.note_owner(workshop.briefs_folder.parent)
    target = read_file(tree.target / MANIFEST, Target).value
    edited_target, tuning_set = session_changes.with_tuning_set(target, name)
    with context.bench.copy_for_folder(tree.target, edited_target) as bench:
        entry = edited_target.tuning[name]
        incumbent = entry.best_on(device_name) or incumbent
        dtype = edited_target.dtypes[device]
        search = PointSearch(context, bench, name, entry, device_name, incumbent)
        search.workloads = expand_sets(edited_target, [tuning_set], dtype, context.task.seed)
        yield from search.compile()
        yield from search.verify()
        if INCUMBENT not in search.sides:
            why = search.trials[INCUMBENT].reason
            message = f"{name}: what runs now ({point_label(search.incumbent)}) is not right: {why}"
            hint = f"mend it, or change tuning.{name}.best: nothing can be held against it"
            trials = tuple(search.trials.values())
            return Result(BriefOutput(ok=False, message=message, hint=hint, trials=trials))
        with ExitStack() as stack:
            yield from hold_device(context.bench, stack)
            yield from search.time_points(search.ranking(), ROUNDS)
            yield from search.time_points(search.ranking()[:FINALISTS], 3 * ROUNDS)
    return Result(_propose_best(search, tree, arguments.gain))


def _propose_best(search: PointSearch, tree: Worktree, gain: float) -> BriefOutput:
    """Save the fastest point as an edit of the manifest with a brief, if faster by share `gain`."""
    best = next((search.trials[label] for label in search.ranking()), None)
    if best is not None and (best.ratio or 0.0) > 1:
        search.record(point_label(best.values), "best", ratio=best.ratio, worst=best.worst)
    trials = sorted(search.trials.values(), key=lambda trial: -(trial.ratio or 0.0))
    values = search.incumbent
    now = TriedPoint(tuning=search.name, values=values, outcome="incumbent", ratio=1.0, worst=1.0)
    fields: dict[str, Any] = {"ok": True, "trials": (now, *trials)}
    # How the search went: `of 4 others 1 did not compile, 2 timed, the best at 1.02x`.
    texts = {"refused": "did not compile", "wrong": "went wrong"}
    counts = Counter(texts.get(trial.outcome, "timed") for trial in trials)
    parts = [f"{counts[text]} {text}" for text in (*texts.values(), "timed") if counts[text]]
    ratios = [trial.ratio for trial in trials if trial.ratio is not None]
    parts += [f"the best at {speedup_text(max(ratios), 3)}"] if ratios else []
    others = len(search.tuning.points) - (search.incumbent in search.tuning.points)
    results = f"of {others} others {', '.join(parts)}" if parts else "there is no other point"
    if best is None or best.ratio is None or best.ratio < 1 + gain:
        message = f"{search.name}: the incumbent stays ({point_label(values)}); {results}"
        return BriefOutput(message=message, learned=(f"Tuning {message}.",), **fields)
    manifest, context = tree.target / MANIFEST, search.context
    workshop = session_changes.workshop_of(context)
    manifest.write_text(write_best(manifest.read_text(), search.name, search.device, best.values))
    brief = Brief(
        number=len(session_changes.SessionChanges(context.finished).judged_changes) + 1,
        variant=search.tuning.variant,
        title=f"{search.tuning.title}: {point_label(best.values)}",
        workload=search.workloads[0].name,
        profile=None,
        folder=str(tree.target),
        files=(MANIFEST,),
        rule=KEEPING_RULE.format(1 + gain),
        timed=tuple(workload.name for workload in search.workloads),
        checks=(*context.task.plan.workloads, *planned_check_sets(context)),
        resume=workshop.resume_command,
        decline=f"{workshop.resume_command} --decline",
        tuning=search.name,
    )
    edit = save_edit(workshop, brief, tree)
    best_text = f"{point_label(best.values)} looks {speedup_text(best.ratio, 3)} as fast as now"
    fields["message"] = f"{search.name}: {best_text}; {results}"
    return BriefOutput(**{**dict(edit), **fields})


def write_best(manifest: str, name: str, device: str, values: Values) -> str:
    """The manifest's text with `tuning.NAME.best.DEVICE` set to `values`.
    Raises UsageError if that tuning is missing, or if the edit would change anything else."""
    node, intended = yaml.compose(manifest), yaml.safe_load(manifest)
    for key in ("tuning", name, "best"):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for field, value in pairs if field.value == key), None)
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"the manifest has no tuning.{name}.best")
    best_by_device = intended["tuning"][name]["best"]
    best_by_device[device] = dict(values)
    entries = {}  # As `sm_90: {ROWS: 64, WARPS: 4}`.
    for key, chosen in best_by_device.items():
        items = ", ".join(f"{field}: {literal_text(value)}" for field, value in chosen.items())
        entries[key] = f"{key}: {{{items}}}"
    separator = ",\n" + " " * (node.start_mark.column + 1)
    best_text = f"{{{separator.join(entries.values())}}}"
    last = node  # A block ends with its last value: the parser's own mark is after comments.
    while isinstance(last, yaml.MappingNode) and not last.flow_style and last.value:
        last = last.value[-1][1]
    edited = manifest[: node.start_mark.index] + best_text + manifest[last.end_mark.index :]
    try:
        is_same_otherwise = yaml.safe_load(edited) == intended
    except yaml.YAMLError:
        is_same_otherwise = False
    if not is_same_otherwise:
        message = f"tuning.{name}.best.{device} cannot be put into the manifest without harm"
        raise UsageError(message, hint=f"write it in by hand: {entries[device]}")
    return edited
