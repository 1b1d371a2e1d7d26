"""The built-in proposer: search the values that a target says may be tuned, under the gate, and propose the best.

Every point is compiled, those that compile are verified, those that are right are timed beside the incumbent. The
fastest becomes an edit of the manifest in the session's worktree, and is judged as any other change is.
"""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Annotated

from pydantic import Field

from loop.base.places import MANIFEST
from loop.base.processes import Tick
from loop.base.ratios import times
from loop.gate.kernel import extra_sets
from loop.library.definitions import read_file
from loop.library.tuned import with_best
from loop.model.base import Model
from loop.model.change import Brief, TriedPoint, TuneOutput
from loop.model.output import outputs_of
from loop.model.pattern import Identifier
from loop.model.target import Target
from loop.optimize import points
from loop.optimize.briefing import rule
from loop.optimize.edits import handed_back
from loop.optimize.points import INCUMBENT, PointSearch, device_of, label_of
from loop.optimize.session_changes import SessionChanges, own_tree, with_tuning_set, workshop
from loop.repository import worktree
from loop.repository.leftover import note_owner
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, Working
from loop.timing.readiness import hold_device


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


def tune(context: Context, arguments: TuneTerms) -> Working[TuneOutput]:
    """Search one thing that may be tuned; which one is the next that this session has not searched yet."""
    searches = open_searches(context, arguments.only)
    if not searches:
        return Result(TuneOutput(ok=True, message=f"nothing {'more ' if searched(context) else ''}to tune here"))
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
        yield from points.compile_points(search)
        yield from points.verify(search)
        best = (yield from _race(search, arguments)) if INCUMBENT in search.sides else None
        if INCUMBENT not in search.sides:
            return Result(points.nothing_to_beat(search))
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


def searched(context: Context) -> set[str]:
    """Names of what this session has searched."""
    return {trial.tuning for output in outputs_of(context.finished, TuneOutput) for trial in output.trials}


def _race(search: PointSearch, arguments: TuneTerms) -> Generator[Tick, None, TriedPoint | None]:
    """Time what is left beside the incumbent, the fastest of it once more; the best, if it beats the incumbent."""
    with ExitStack() as stack:
        yield from hold_device(search.context.bench, stack)
        rivals = [label for label in search.sides if label != INCUMBENT]
        trials = yield from points.timed(search, rivals, arguments.rounds)
        fastest = sorted(trials, key=lambda label: -(trials[label].ratio or 0))[: arguments.finalists]
        if fastest:
            trials |= yield from points.timed(search, fastest, 3 * arguments.rounds)
    fresh = [trial for label, trial in trials.items() if label in search.sides]
    timed = sorted(fresh, key=lambda trial: -(trial.ratio or 0))
    best = timed[0] if timed and (timed[0].ratio or 0) > 1 else None
    search.trials += [trial.model_copy(update={"outcome": "best"}) if trial is best else trial for trial in timed]
    return best


def _proposed(search: PointSearch, best: TriedPoint | None, tree: Worktree, arguments: TuneTerms) -> TuneOutput:
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
    brief = _brief(search, best, tree, arguments)
    back = handed_back(workshop(search.context), brief, tree.changed(), tree)
    message = f"{search.name}: {label_of(best.values)} looks {times(best.ratio, 3)} as fast as now; {counts}"
    fields = {**dict(back), "message": message, "trials": trials, "ground": search.ground}
    return TuneOutput(**fields)


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
