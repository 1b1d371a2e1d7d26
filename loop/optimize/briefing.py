"""Request one change: find the workload with most to gain, write a brief, wait for an edit."""

from collections.abc import Generator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from loop.agents import proposing
from loop.base.documents import to_json, write_atomic
from loop.base.errors import WorkFailed
from loop.base.places import shipped
from loop.base.processes import Tick
from loop.builds import build
from loop.builds.build import Buildable
from loop.gate.kernel import planned_check_sets, workloads
from loop.model.base import Model
from loop.model.change import Brief, BriefOutput, Standing, TriedChange
from loop.model.measurement import Measurement
from loop.model.profile import FACTS
from loop.model.target import PythonVariant
from loop.optimize import campaign
from loop.optimize.campaign import compiler_errors
from loop.optimize.edits import brief_path, find_editable_files, may_change, may_edit_variant, save_edit
from loop.optimize.session_changes import SessionChanges, session_worktree, workshop_of
from loop.profile import bottleneck
from loop.profile.actions import describe_leaf, fact_text
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.templates import markdown_environment
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, RunningAction

TEMPLATE = "brief.md.j2"
MOST_ENDINGS, LONGEST_ENDING = 6, 300
"""Most candidates that could not be judged in a brief, and most characters of each."""
MOST_TRIED = 12
"""Most rejected ideas in a brief, of this session and of earlier ones; the JSON has all."""


def render_brief(templates: Path, brief: Brief) -> str:
    """The brief as a page of Markdown. `templates`: the folder of brief.md.j2. It has the facts of the profile,
    each with its source or the reason why it is unknown; the changes judged in this session; and changes that
    earlier sessions reverted (`brief.lost`)."""
    profile, facts, leaf, leaf_text = brief.profile, None, None, ""
    if profile is not None:
        leaf, leaf_text = describe_leaf(profile)  # Where the profile's decision tree ended.
        rows = []
        for name, meaning in FACTS.items():
            fact = profile.facts.get(name)
            if fact is not None or name in profile.unknown:
                source = profile.sources.get(name) or profile.unknown.get(name, "")
                rows.append((name, "unknown" if fact is None else fact_text(fact), meaning, source))
        facts = drop_empty_columns(("Fact", ">Value", "What it is", "Source"), rows)

    def result_cells(change: TriedChange) -> tuple[str, str, str]:
        """The cells that both tables share: speed, reason and patch."""
        return say.speedup_text(change.gain) if change.gain else "not timed", change.reason, change.patch

    tried, reverted = [], []
    for change in brief.tried[-MOST_TRIED:]:
        tried.append((str(change.number), change.variant, change.outcome, *result_cells(change)))
    for change in brief.lost[-MOST_TRIED:]:
        reverted.append((change.session, ", ".join(change.files), *result_cells(change)))
    template = markdown_environment(templates).get_template(TEMPLATE)
    return template.render(
        brief=brief,
        leaf=leaf,
        where=leaf_text,
        facts=facts,
        tried=drop_empty_columns((">Change", "Variant", "Outcome", ">Speed", "Why", "Patch"), tried),
        lost=drop_empty_columns(("Session", "Files", ">Speed", "Why it was taken back", "Patch"), reverted),
    )


class GainTerms(Model):
    """When to keep a change."""

    gain: Annotated[float, Field(ge=0, le=10)] = 0.01
    """Share by which its mean speed has to exceed the incumbent's: 0.01 is 1 %."""


def brief(context: Context, arguments: GainTerms) -> RunningAction[BriefOutput]:
    """Get one edit in loop's own worktree: by proposers, or by a pause in which the user edits. If no further
    change is wanted or the campaign is over, passes without an edit (`declined`)."""
    workshop, end_reason = workshop_of(context), None
    if workshop.is_declined:
        end_reason = "no further change is wanted"
    elif not campaign.unjudged_edits(context):
        end_reason = campaign.sum_spending(context).explain_end(context.task.campaign)
    if end_reason is not None:
        return Result(BriefOutput(ok=True, declined=True, message=end_reason))
    focus, standings = choose_focus(context) or (None, ())
    if focus is None:
        why = "nothing to improve: no variant that may be edited has a speed to be trusted"
        return Result(BriefOutput(ok=False, message=why, hint=context.command("run", "session", "baseline")))
    yield Tick("preparing the worktree")
    tree = session_worktree(context, workshop)
    if tree is None:
        tree = yield from _create_worktree(context, focus.variant)
    brief = yield from _write_brief(context, focus, standings, tree, arguments)
    if context.task.campaign.is_unattended:
        return (yield from campaign.offer_candidate(context, brief, tree))
    result = _accept_edit(context, brief, tree)
    error = "" if result.paused else (yield from compiler_errors(context, brief.variant, tree))
    return _pause(brief, f"the edit does not compile: {error.splitlines()[0]}") if error else result


def _create_worktree(context: Context, name: str) -> Generator[Tick, None, Worktree]:
    """Create the session's worktree. Raises WorkFailed if the unchanged variant does not compile there."""
    workshop = workshop_of(context)
    tree = worktree.make_from_checkout(context.task.folder, workshop.worktree)
    error = yield from compiler_errors(context, name, tree)
    if error:
        tree.remove()
        raise WorkFailed(
            f"{name} cannot be edited in a worktree: {error.splitlines()[0]}",
            hint="what it is built from has to be in git or beside its sources: no submodules, no ignored headers",
        )
    tree.note_owner(workshop.briefs_folder.parent)
    return tree


def choose_focus(context: Context) -> tuple[Measurement, tuple[Standing, ...]] | None:
    """The timing with most time to save, of the variants that may be edited, and all speeds of its variant; None
    without any speed."""
    bench, variants = context.bench, context.bench.target.variants
    measured = SessionChanges(context.finished).measured_by_variant
    worst: dict[str, Measurement] = {}
    for name, output in measured.items():
        if name in variants and may_edit_variant(bench.target, bench.folder, name):
            worst |= bottleneck.worst_measurements(output, [name])
    # Examples and baselines only if no main variant may be edited.
    main = [timing for name, timing in worst.items() if variants[name].role == "main"]
    candidates = main or [*worst.values()]
    if not candidates:
        return None

    def saved_share(timing: Measurement) -> float:
        return bottleneck.saved_time_share(timing.ratio, timing.workload.weight)

    focus = min(candidates, key=lambda timing: (-saved_share(timing), timing.ratio))
    standings = []
    for timing in sorted(measured[focus.variant].measurements, key=saved_share, reverse=True):
        if (timing.variant, timing.against) == (focus.variant, "baseline"):
            standing = Standing(
                workload=timing.workload.name,
                ratio=timing.ratio,
                interval=timing.interval,
                worth=saved_share(timing),
            )
            standings.append(standing)
    return focus, tuple(standings)


def _write_brief(
    context: Context, focus: Measurement, standings: tuple[Standing, ...], tree: Worktree, arguments: GainTerms
) -> Generator[Tick, None, Brief]:
    """Write the brief of a change as Markdown and as JSON. `focus`: the timing to be improved."""
    workshop, changes, name = workshop_of(context), SessionChanges(context.finished), focus.variant
    variant = build.buildable_variants(context.bench, [name])[name]
    users_by_file = yield from find_editable_files(context, name)  # Other variants that use the file.
    own_files = [file for file, users in users_by_file.items() if not users]
    for change in changes.judged_changes:
        # A file that a kept change added is not among these files, which are the original target's.
        own_files += [file for file in change.files if change.outcome == "kept" and file not in users_by_file]
    endings: dict[str, str] = {}  # How a candidate ended, to the line on the last that ended so.
    for proposal in changes.proposals:
        if proposal.ended not in ("edited", "interrupted"):
            endings[proposal.text] = f"candidate {proposal.number}: {proposal.text}"[:LONGEST_ENDING]
    brief = Brief(
        number=changes.next_number,
        variant=name,
        title=variant.title,
        workload=focus.workload.name,
        profile=changes.profile_by_variant.get(name),
        folder=str(tree.target),
        files=tuple(dict.fromkeys(own_files)),
        shared={file: users for file, users in users_by_file.items() if users},
        ratios=standings,
        contract=contract(context, variant),
        check=f"loop kernels check {name} --json",
        answer=str(tree.root / proposing.ANSWER_FILE) if context.task.campaign.is_unattended else "",
        rule=keeping_rule(arguments.gain),
        timed=tuple(workload.name for workload in workloads(context, context.task.plan.workloads)),
        checks=tuple(planned_check_sets(context)),
        tried=changes.judged_changes,
        fell=tuple(endings.values())[-MOST_ENDINGS:],
        lost=tuple(change for change in context.past.reverted_changes if change.variant == name),
        resume=workshop.resume_command,
        decline=f"{workshop.resume_command} --decline",
    )
    workshop.briefs_folder.mkdir(parents=True, exist_ok=True)
    write_atomic(brief_path(workshop.briefs_folder, brief), render_brief(shipped("templates"), brief))
    write_atomic(brief_path(workshop.briefs_folder, brief).with_suffix(".json"), to_json(brief))
    return brief


def contract(context: Context, variant: Buildable) -> dict[str, str]:
    """What an edit must not change, in words: call, compiler, tensors, types and tolerance."""
    target = context.bench.target
    dtype = target.dtypes[context.bench.device]
    inputs = [f"{name} [{sizes}]" for name, sizes in target.signature.inputs.items()]
    outputs = [f"[{sizes}]" for sizes in target.signature.outputs.values()]
    generator = target.generator.python if target.generator else "the reference"
    tolerance = target.tolerance[dtype]
    if isinstance(variant, PythonVariant):
        kind = "a class" if target.modules else "a function"
        passing = "writes to outputs that follow its inputs"
        if variant.passing == "returned":
            passing = "returns its outputs"
        terms = {"Entry": f"{variant.module}:{variant.function}, {kind} that {passing}"}
    else:
        compiler = " ".join([variant.build.compiler, *variant.build.flags])
        terms = {"Entry": f"{variant.entry}, by loop_kernel.h", "Compiler": compiler}
    return {
        **terms,
        "Inputs": ", ".join(inputs) or f"those of {generator}",
        "Output": ", ".join(outputs) or f"that of {target.reference.python}",
        "Attributes": ", ".join(target.signature.attributes) or "none",
        "Types": ", ".join(variant.dtypes),
        "Tolerance": f"{dtype}: {tolerance.atol:g} + {tolerance.rtol:g} x the right answer, against float64",
    }


def keeping_rule(gain: float) -> str:
    """The rule by which a change is kept, in words. `gain`: share, 0.02 is 2 %."""
    return (
        "right on every check, found clean by the sanitizer where there is a GPU, slower than the incumbent on no "
        f"workload, faster on one at least, and {1 + gain:.3g}x its speed in the mean"
    )


def _accept_edit(context: Context, brief: Brief, tree: Worktree) -> Result[BriefOutput]:
    """The edit in the worktree, if it may be judged; else a pause that says why not: nothing is edited, a file
    may not change, or an earlier session reverted this very edit."""
    workshop, lines_by_file, existing = workshop_of(context), tree.changed_lines(), tree.committed_files()
    page = brief_path(workshop.briefs_folder, brief)
    if not lines_by_file:
        return _pause(brief, f"one change to {brief.variant} is asked for: {page}")
    for file in lines_by_file:
        if not may_change(file, brief.files, existing):
            why, others = f"{file} may not change", brief.shared.get(file, ())
            if others:
                options = " ".join(f"--variant {name}" for name in (brief.variant, *others))
                why += f": {', '.join(others)} read it too and are not judged here; {options} begins with all"
            return _pause(brief, f"{why} (brief: {page}); take that back in {brief.folder}")
    edit = save_edit(workshop, brief, tree)
    for reverted in brief.lost:
        if reverted.digest == edit.digest and not context.task.retries_lost_changes:
            why = f"{reverted.session}: {reverted.reason} (--again judges it anew)"
            return _pause(brief, f"this very change was taken back in {why}")
    return Result(edit)


def _pause(brief: Brief, message: str) -> Result[BriefOutput]:
    """A result that pauses the session until the user has edited and resumes it."""
    output = BriefOutput(ok=True, message=message, hint=f"edit, then: {brief.resume}", brief=brief)
    return Result(output, paused=True)
