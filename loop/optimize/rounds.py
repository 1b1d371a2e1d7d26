"""The changes of a session: which were judged, which one is at hand, and the builds it is held against."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from loop.base.errors import ExitCode, LoopError
from loop.base.places import MANIFEST
from loop.library.definitions import read_file
from loop.model.change import BriefOutput, ChangeBuildOutput, DecisionOutput, Tried
from loop.model.outcome import Output
from loop.model.output import BuildOutput, MeasureOutput, ProfileOutput
from loop.model.outputs import read_output
from loop.model.profile import Profile
from loop.model.record import Finished, KnownGood
from loop.model.target import Target
from loop.repository import worktree
from loop.repository.leftover import is_noted
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Workshop

ON_CHANGE = "change."
ON_TARGET = "kernel."
INCUMBENT = "the incumbent"
Kind = TypeVar("Kind", bound=Output)


@dataclass(frozen=True)
class Rounds:
    """What the records of a session say of its changes. A round is one run of a pattern that makes one."""

    finished: Sequence[Finished]

    @property
    def decisions(self) -> list[tuple[int, DecisionOutput]]:
        """Run and decision of each change that was judged."""
        found = [(r.run, read_output(r.action, r.output)) for r in self.finished if r.action == "change.decide"]
        return [(run, output) for run, output in found if isinstance(output, DecisionOutput)]

    @property
    def tried(self) -> tuple[Tried, ...]:
        """The changes that were judged, in order."""
        return tuple(decision.tried for _, decision in self.decisions if decision.tried)

    @property
    def number(self) -> int:
        """Number of the change at hand, from 1."""
        return len(self.tried) + 1

    @property
    def incumbents(self) -> dict[str, str]:
        """Variant to the build that a change is held against: what the session built, or kept since."""
        kept = [decision.incumbents for _, decision in self.decisions if decision.kept]
        if kept:
            return kept[-1]
        built = next((o for o in self._outputs(BuildOutput, "kernel.build")), None)
        return {one.variant: one.build_id for one in built.builds} if built else {}

    @property
    def measured(self) -> MeasureOutput | None:
        """The incumbents' speed against the baseline: of each variant the last time it was measured."""
        every = list(self._outputs(MeasureOutput, "kernel.measure", "change.measure"))
        if not every:
            return None
        newest: dict[str, MeasureOutput] = {}
        for output in every:  # The last first.
            for name in {one.variant for one in (*output.verdicts, *output.measurements)}:
                newest.setdefault(name, output)
        parts = list(newest.items())
        verdicts = tuple(one for name, output in parts for one in output.verdicts if one.variant == name)
        measured = tuple(one for name, output in parts for one in output.measurements if one.variant == name)
        return every[0].model_copy(update={"verdicts": verdicts, "measurements": measured})

    @property
    def profiled(self) -> ProfileOutput | None:
        """What holds the incumbents back: of each variant the last profile."""
        every = list(self._outputs(ProfileOutput, "kernel.profile", "change.profile"))
        if not every:
            return None
        newest: dict[str, Profile] = {}
        for output in every:
            for one in output.profiles:
                newest.setdefault(one.variant, one)
        return every[0].model_copy(update={"profiles": tuple(newest.values())})

    @property
    def first_base(self) -> str:
        """Commit of the worktree that the first change of this session stood on; empty before there was one."""
        outputs = (read_output(record.action, record.output) for record in self.finished)
        return next((one.base for one in outputs if isinstance(one, BriefOutput) and one.base), "")

    def _outputs(self, kind: type[Kind], *actions: str) -> Iterator[Kind]:
        """Outputs on the incumbents, the last first: those of the target, and of changes that were kept."""
        kept = {run for run, decision in self.decisions if decision.kept}
        for record in reversed(self.finished):
            if record.action in actions and (record.action.startswith(ON_TARGET) or record.run in kept):
                output = read_output(record.action, record.output)
                found = getattr(output, "found", output)
                if isinstance(found, kind):
                    yield found


@dataclass(frozen=True)
class Round:
    """The change at hand."""

    context: Context
    run: int
    brief: BriefOutput
    tree: Worktree

    @property
    def records(self) -> list[Finished]:
        """Its steps so far."""
        return [record for record in self.context.finished if record.run == self.run]

    def output(self, kind: type[Kind]) -> Kind | None:
        """What its step of that kind found; None where there was none."""
        outputs = (read_output(record.action, record.output) for record in self.records)
        return next((one for one in outputs if isinstance(one, kind)), None)

    @property
    def touched(self) -> tuple[str, ...]:
        """Variants that it changes; before it was built, all."""
        built = self.output(ChangeBuildOutput)
        return built.touched if built else tuple(self.context.bench.compiled(self.context.variants))


def workshop(context: Context) -> Workshop:
    """Where the target may be edited. Raises LoopError outside a session."""
    if context.workshop is None:
        raise LoopError("a change needs a session: it is kept there", hint="loop run session optimize")
    return context.workshop


def own_tree(context: Context, shop: Workshop) -> Worktree | None:
    """The session's worktree, if it was made to its end. What a kill left half made is nobody's edit, and goes."""
    tree = worktree.find(context.folder, shop.tree)
    was_asked = any(str(shop.tree) in page.read_text() for page in shop.notes.glob("*-brief.json"))
    if was_asked or (tree is not None and is_noted(tree)):
        return tree
    worktree.clear(context.folder, shop.tree)
    return None


def this_round(context: Context) -> Round:
    """The change that the last brief asked for. Raises LoopError where its worktree or its edit is not there."""
    found = [(r.run, read_output(r.action, r.output)) for r in context.finished if r.action.startswith(ON_CHANGE)]
    briefs = [(run, output) for run, output in found if isinstance(output, BriefOutput)]
    if not briefs or not briefs[-1][1].edited:
        raise LoopError("there is no change to be judged", hint="a step `change.brief` comes before this one")
    shop = workshop(context)
    tree = worktree.find(context.folder, shop.tree)
    if tree is None:
        raise LoopError(f"{shop.tree}: the worktree with the edit is gone", hint="run the session anew")
    return Round(context, *briefs[-1], tree)


@contextmanager
def candidate(context: Context) -> Iterator[Context]:
    """The session as an action sees it, with the edited target in the place of the checkout's.

    Its variants are those that the edit changes, and their known good is the incumbent.
    """
    at_hand = this_round(context)
    target, plan = read_file(at_hand.tree.target / MANIFEST, Target).value, context.plan
    tuned = at_hand.brief.brief.tuning if at_hand.brief.brief else None
    if tuned is not None:
        target = with_tuning_set(target, tuned)
        checks = (*plan.workloads, *plan.checks)
        plan = plan.model_copy(update={"workloads": (tuning_set(tuned),), "checks": checks})
    incumbents = Rounds(context.finished).incumbents
    with context.bench.at(at_hand.tree.target, target) as bench:
        yield replace(
            context,
            bench=bench,
            plan=plan,
            folder=at_hand.tree.target,
            variants=at_hand.touched,
            emulated=(),
            finished=tuple(_as_of_target(record) for record in at_hand.records),
            known_good={
                name: KnownGood(session=INCUMBENT, build_id=i, commit=None) for name, i in incumbents.items()
            },
        )


def tuning_set(name: str) -> str:
    """Name of the set of workloads that something is tuned on."""
    return f"tuning-{name}"


def with_tuning_set(target: Target, name: str) -> Target:
    """The target with one more set: the workloads that something is tuned on."""
    sets = {**target.workloads, tuning_set(name): target.tuning[name].workloads}
    return target.model_copy(update={"workloads": sets})


def _as_of_target(record: Finished) -> Finished:
    """A step on the change, as the same step on the target would be recorded."""
    found = record.output.get("found")
    if not record.action.startswith(ON_CHANGE) or not found:
        return record
    action = ON_TARGET + record.action.removeprefix(ON_CHANGE)
    return record.model_copy(update={"action": action, "output": found})


def unchanged(at_hand: Round, digest: str) -> None:
    """Raises LoopError where the worktree is no longer what was handed back."""
    if digest != at_hand.brief.digest:
        raise LoopError(
            f"{at_hand.tree.target} was edited while the change was judged",
            hint=f"what is there now is judged next; what was handed back before: {at_hand.brief.patch}",
            exit_code=ExitCode.GATE_FAILED,
        )
