"""The changes of a session: those judged, the current one, and the builds it has to beat."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from loop.base.documents import content_hash
from loop.base.errors import UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.builds.build import buildable_variants
from loop.gate.model import BuildOutput
from loop.library.definitions import read_file
from loop.model.campaign import Proposal
from loop.model.change import (
    ON_CHANGE,
    BriefOutput,
    DecisionOutput,
    JudgedOutput,
    TriedChange,
    as_target_step,
    latest_proposals,
)
from loop.model.output import MeasureOutput, Output, outputs_by_run, read_output
from loop.model.profile import Profile
from loop.model.record import Finished, KnownGood
from loop.model.target import Target
from loop.profile.model import ProfileOutput
from loop.repository import worktree
from loop.repository.worktree import Worktree, is_noted
from loop.steps.context import Context, Workshop

INCUMBENT = "the incumbent"
Kind = TypeVar("Kind", bound=Output)


@dataclass(frozen=True)
class SessionChanges:
    """What a session's records say about its changes; each change is one run of a pattern."""

    finished: Sequence[Finished]

    @property
    def decisions(self) -> list[tuple[int, DecisionOutput]]:
        """Run number and decision of each judged change."""
        return outputs_by_run(self.finished, DecisionOutput)

    @property
    def tried(self) -> tuple[TriedChange, ...]:
        """The judged changes, in order."""
        return tuple(decision.tried for _, decision in self.decisions if decision.tried)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """The proposals of a campaign, in order."""
        return latest_proposals(output for _, output in outputs_by_run(self.finished, BriefOutput))

    @property
    def judged_edits(self) -> set[str]:
        """Hashes of the patches judged so far, the current one included."""
        return {brief.digest for _, brief in outputs_by_run(self.finished, BriefOutput) if brief.digest}

    @property
    def gained(self) -> float:
        """Speedup by the kept changes, for the variant that gained most."""
        ratios: dict[str, float] = {}
        for change in self.tried:
            if change.outcome == "kept":
                ratios[change.variant] = ratios.get(change.variant, 1.0) * (change.gain or 1.0)
        return max(ratios.values(), default=1.0)

    @property
    def without_gain(self) -> int:
        """Candidates, and changes of a person, since the last kept one."""
        since = 0
        for record in self.finished:
            brief, decision = read_output(record, BriefOutput), read_output(record, DecisionOutput)
            if brief:
                since += sum(proposal.ended != "edited" for proposal in brief.proposals)
            if decision:
                since = 0 if decision.kept else since + 1
        return since

    @property
    def number(self) -> int:
        """Number of the current change, from 1."""
        return len(self.tried) + 1

    @property
    def start(self) -> dict[str, str]:
        """Variant to its build id at the start of the session."""
        built = list(self._outputs(BuildOutput, changes=False))
        return {build.variant: build.build_id for build in built[-1].builds} if built else {}

    @property
    def incumbents(self) -> dict[str, str]:
        """Variant to the build id to beat: the session's build, or that of the last kept change."""
        kept = [decision.incumbents for _, decision in self.decisions if decision.kept]
        if kept:
            return kept[-1]
        built = next(self._outputs(BuildOutput, changes=False), None)
        return {build.variant: build.build_id for build in built.builds} if built else {}

    @property
    def measured(self) -> dict[str, MeasureOutput]:
        """Variant to the latest timing of its incumbent against the baseline."""
        newest: dict[str, MeasureOutput] = {}
        for output in self._outputs(MeasureOutput):  # Latest first.
            for row in (*output.verdicts, *output.measurements):
                newest.setdefault(row.variant, output)
        return newest

    @property
    def profiles(self) -> dict[str, Profile]:
        """Variant to the latest profile of its incumbent."""
        newest: dict[str, Profile] = {}
        for output in self._outputs(ProfileOutput):
            for profile in output.profiles:
                newest.setdefault(profile.variant, profile)
        return newest

    @property
    def first_base(self) -> str:
        """Commit that the session's first change was based on; empty before there is one."""
        return next((output.base for _, output in outputs_by_run(self.finished, BriefOutput) if output.base), "")

    def _outputs(self, kind: type[Kind], *, changes: bool = True) -> Iterator[Kind]:
        """Outputs on the incumbents, latest first: of the original target, and of kept changes."""
        kept_runs = {run for run, decision in self.decisions if decision.kept and changes}
        for record in reversed(self.finished):
            if not record.action.startswith(ON_CHANGE) or record.run in kept_runs:
                output = read_output(as_target_step(record), kind)
                if output:
                    yield output


@dataclass(frozen=True)
class ChangeAtHand:
    """The current change: its run, its brief with the edit, and its worktree."""

    context: Context
    run: int
    brief: BriefOutput
    tree: Worktree

    @property
    def records(self) -> list[Finished]:
        """Finished steps of the change."""
        return [record for record in self.context.finished if record.run == self.run]

    def judged(self, action: str) -> JudgedOutput | None:
        """The gate's judgement by this action; None if it did not run."""
        read = (read_output(record, JudgedOutput) for record in self.records if record.action == action)
        return next((output for output in read if output), None)

    def found(self, kind: type[Kind]) -> Kind | None:
        """The output of this type, from the change's steps; None if none produced it."""
        read = (read_output(as_target_step(record), kind) for record in self.records)
        return next((output for output in read if output), None)

    def refuse_edited(self) -> None:
        """Raises WorkFailed if the worktree no longer matches the edit that is judged."""
        if content_hash(self.tree.patch()) != self.brief.digest:
            raise WorkFailed(
                f"{self.tree.target} was edited while the change was judged",
                hint=f"what is there now is judged next; what was handed back before: {self.brief.patch}",
            )


def workshop(context: Context) -> Workshop:
    """Where the target may be edited. Raises LoopError outside a session."""
    if context.task.workshop is None:
        raise UsageError("a change needs a session: it is kept there", hint="loop run session optimize")
    return context.task.workshop


def own_tree(context: Context, shop: Workshop) -> Worktree | None:
    """The session's worktree; None, with leftovers deleted, if it was never completed."""
    tree = worktree.find_worktree(context.task.folder, shop.tree)
    was_asked = any(str(shop.tree) in page.read_text() for page in shop.notes.glob("*-brief.json"))
    if was_asked or (tree is not None and is_noted(tree)):
        return tree
    worktree.clear_place(context.task.folder, shop.tree)
    return None


def change_at_hand(context: Context) -> ChangeAtHand:
    """The current change. Raises LoopError if its worktree or its edit is missing."""
    briefs = outputs_by_run(context.finished, BriefOutput)
    if not briefs or not briefs[-1][1].edited:
        raise UsageError("there is no change to be judged", hint="a step `change.brief` comes before this one")
    shop = workshop(context)
    tree = worktree.find_worktree(context.task.folder, shop.tree)
    if tree is None:
        raise WorkFailed(f"{shop.tree}: the worktree with the edit is gone", hint="run the session anew")
    return ChangeAtHand(context, *briefs[-1], tree)


@contextmanager
def candidate(context: Context) -> Iterator[Context]:
    """The session's context, with the edited target in place of the original.

    Its variants are those that the edit changes; their known-good build is the incumbent.
    """
    at_hand = change_at_hand(context)
    target, plan = read_file(at_hand.tree.target / MANIFEST, Target).value, context.task.plan
    tuned = at_hand.brief.brief.tuning if at_hand.brief.brief else None
    if tuned is not None:
        target = with_tuning_set(target, tuned)
        checks = (*plan.workloads, *plan.checks)
        plan = plan.model_copy(update={"workloads": (tuning_set(tuned),), "checks": checks})
    incumbents, built = SessionChanges(context.finished).incumbents, at_hand.judged("change.build")
    good = {name: KnownGood(session=INCUMBENT, build_id=i, commit=None) for name, i in incumbents.items()}
    # Before its build, the change may affect any variant.
    variants = built.touched if built else tuple(buildable_variants(context.bench, context.task.variants))
    task = replace(context.task, plan=plan, folder=at_hand.tree.target, variants=variants, emulated=())
    with context.bench.copy_for_folder(at_hand.tree.target, target) as bench:
        yield replace(
            context,
            bench=bench,
            task=task,
            finished=tuple(as_target_step(record) for record in at_hand.records),
            past=replace(context.past, known_good=good),
        )


def tuning_set(name: str) -> str:
    """Name of the workload set for a tuning search."""
    return f"tuning-{name}"


def with_tuning_set(target: Target, name: str) -> Target:
    """The target with one more set: the workloads of a tuning search."""
    sets = {**target.workloads, tuning_set(name): target.tuning[name].workloads}
    return target.model_copy(update={"workloads": sets})
