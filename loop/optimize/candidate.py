"""The gate's steps, run on the edited target, and the decision to keep or revert the change."""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from loop.base.documents import write_atomic
from loop.base.processes import Tick
from loop.builds.build import find_build_by_id
from loop.builds.resources import is_same_build
from loop.gate import kernel
from loop.gate.model import BuildOutput
from loop.library import targets
from loop.library.definitions import Project
from loop.library.trust import read_origin
from loop.model.change import DecisionOutput, JudgedOutput, TriedChange, as_target_step
from loop.model.output import Output, outputs_by_run
from loop.optimize import comparisons, session_changes
from loop.optimize.briefing import GainTerms, sum_spending
from loop.optimize.model import BriefOutput
from loop.optimize.session_changes import SessionChanges, change_at_hand, edited_context
from loop.profile import actions as profile
from loop.repository.worktree import UNCOMMITTED_MESSAGE, git, root_of
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.steps.spread import result_of_job
from loop.timing import against_known_good
from loop.timing.against_known_good import CompareOutput, CompareTerms

KEPT_PATCH = "kept.patch"  # All kept changes of a session, relative to the original checkout.
Arguments = TypeVar("Arguments")
GATE_STEPS = ("build", "verify", "properties", "sanitize", "measure")  # Before the comparison.


def on_edited_target(
    action: Callable[[Context, Arguments], RunningAction[Output]],
) -> Callable[[Context, Arguments], RunningAction[JudgedOutput]]:
    """The same action on the edited target, as a step that judges the change. If the action fails,
    the change is bad, not the session: the step passes with `good` False."""

    @functools.wraps(action)
    def judge(context: Context, arguments: Arguments) -> RunningAction[JudgedOutput]:
        with edited_context(context) as edited:
            result = yield from action(edited, arguments)
        return _as_judgement(result)

    # The table of actions reads the types of arguments and result here.
    judge.__annotations__ = {**action.__annotations__, "return": RunningAction[JudgedOutput]}
    return judge


def _as_judgement(result: Result[Output], **fields: Any) -> Result[JudgedOutput]:
    """A step's result on the edited target as a judgement; `fields` override its own."""
    output = result.output
    texts = output.model_dump(include={"message", "hint", "not_exercised"})
    values = {**texts, "good": output.ok, "found": output.model_dump(mode="json"), **fields}
    samples = {f"change-{name}": rows for name, rows in result.samples.items()}
    return Result(JudgedOutput(ok=True, **values), samples)


def build(context: Context, arguments: NoArguments) -> RunningAction[JudgedOutput]:
    """Compile the edited target; report which variants the edit changes. The change is bad if it
    does not compile, or if all changed builds run the incumbent's code."""
    change_at_hand(context).refuse_if_edited_since()
    with edited_context(context) as edited:
        result = yield from kernel.build_variants(edited, arguments)
    output, incumbents = result.output, SessionChanges(context.finished).incumbents
    changed = [build for build in output.builds if incumbents.get(build.variant) != build.build_id]
    names, runs_other_code = tuple(build.variant for build in changed), False
    for build in changed:
        build_id, incumbent = incumbents.get(build.variant), None
        if build_id:
            incumbent = find_build_by_id(build.variant, build_id, context.bench.cache)
        runs_other_code |= incumbent is None or not is_same_build(incumbent, build)
    if runs_other_code or not output.ok:
        return _as_judgement(result, touched=names)
    message = "the edit changes no variant of this session"
    if changed:
        message = "the edit changes nothing that runs: the code is that of the incumbent"
    return _as_judgement(result, good=False, message=message, touched=names)


def compare(context: Context, arguments: CompareTerms) -> RunningAction[JudgedOutput]:
    """Time the edited target against the incumbent until the result is clear; or have a job do it.
    Each later candidate needs more evidence, as one of many may look faster by chance."""
    at_hand, campaign = change_at_hand(context), context.task.campaign
    brief = at_hand.brief_output.brief
    number = len(SessionChanges(context.finished).judged_changes) + 1
    # A tuned change is not compared in a job: no manifest has its workloads.
    if campaign.executor and brief is not None and brief.tuning is None:
        number = at_hand.brief_output.candidate or number
        patches = {number: None}
        jobs = yield from comparisons.compare_in_jobs(context, at_hand.tree, patches, arguments)
        result = result_of_job(jobs[number], CompareOutput)
        return _as_judgement(result, jobs=(jobs[number].run_record,))
    remaining_s = sum_spending(context).remaining_s(campaign, context.task.usd_per_hour)
    changed = {"candidate": number, "more_s": min(arguments.more_s, remaining_s)}
    arguments = arguments.model_copy(update=changed)
    return (yield from on_edited_target(against_known_good.compare)(context, arguments))


def profile_change(context: Context, arguments: NoArguments) -> RunningAction[JudgedOutput]:
    """Profile the edited target for what limits its speed. Without a decision tree: only a note."""
    step = context.task.first_step("kernel.profile")
    if step is None:
        message = "no pattern of this session has a decision tree"
        output = JudgedOutput(ok=True, message=message, not_exercised=(f"a profile: {message}",))
        return Result(output, idle=True)
    tree = profile.ProfileTerms.model_validate(step.arguments)  # The decision tree.
    return (yield from on_edited_target(profile.profile)(context, tree))


def decide(context: Context, arguments: GainTerms) -> RunningAction[DecisionOutput]:
    """Keep the change, as a commit on the session's branch, or revert it; its patch stays. A
    session that was killed in between repeats this safely."""
    at_hand = change_at_hand(context)
    yield Tick("deciding")
    edit, brief = at_hand.brief_output, at_hand.brief_output.brief
    if at_hand.tree.head == edit.base:  # Not committed yet by an attempt that was killed.
        at_hand.refuse_if_edited_since()
    failed_steps = [record for record in at_hand.records if record.status == "failed"]
    failures = [f"{record.step}: {record.message}" for record in failed_steps]
    judgements = [at_hand.judgement_by(f"change.{name}") for name in GATE_STEPS]
    failures += [output.message for output in judgements if output and not output.good]
    steps = [as_target_step(record) for record in at_hand.records]
    compared = outputs_by_run(steps, CompareOutput)  # With the incumbent.
    verdicts = compared[0][1].verdicts if compared else ()
    failure = failures[0] if failures else None
    outcome, reason, gain = comparisons.decide_on_change(failure, verdicts, arguments.gain)
    assert brief is not None
    if edit.not_faster:
        reason += "; a job had shown this, so the gate's other checks did not run"
    identity = {"number": brief.number, "variant": brief.variant, "files": edit.files}
    change = TriedChange(outcome=outcome, reason=reason, gain=gain, patch=edit.patch, **identity)
    tree, session, branch = at_hand.tree, context.task.session, ""
    incumbents = SessionChanges(context.finished).incumbents
    fields: dict[str, Any] = {"incumbents": incumbents}
    message = f"change {change.number} {outcome}: {reason}"
    if outcome == "reverted":
        tree.revert()
    else:
        if tree.head == edit.base:
            tree.commit(f"{change.variant}: {reason}\n\nChange {change.number}.", session)
        branch = tree.point_branch(f"loop/{session}") if tree.repository else ""
        kept_patch = session_changes.workshop_of(context).briefs_folder / KEPT_PATCH
        briefs = outputs_by_run(context.finished, BriefOutput)
        first_base = next((output.base for _, output in briefs if output.base), edit.base)
        write_atomic(kept_patch, tree.patch(first_base))
        words = find_takeover_command(context.task.folder, branch, kept_patch, change.variant)
        taking = shlex.join(words)
        as_patch = f"the sources of the answer, as a patch: {kept_patch}"
        message += f"; take it over: {taking}" if taking else f"; {as_patch}"
        for _, output in outputs_by_run(steps, BuildOutput)[:1]:
            incumbents |= {build.variant: build.build_id for build in output.builds}
        project = Project(tree.target, kept_patch.parents[2], bundled=False)  # [2]: all sessions.
        fields |= {"taking": taking, "ground": targets.sources_hash(project)}
    learned = (f"Change {change.number} to {change.variant} was {outcome}: {reason}.",)
    fields |= {"kept": outcome == "kept", "tried": change, "branch": branch, "learned": learned}
    return Result(DecisionOutput(ok=True, message=message, tuning=brief.tuning, **fields))


def find_takeover_command(folder: Path, branch: str, patch: Path, variant: str) -> list[str]:
    """The command that applies all kept changes to the user's files, or to a task's answer; empty
    if none can: an answer with its sources inside a JSON document."""
    subjects = git(folder, "log", "--format=%s", f"HEAD..{branch}").splitlines() if branch else []
    if UNCOMMITTED_MESSAGE in subjects:  # A merge would fail, or commit what the user has not.
        return ["git", "-C", str(root_of(folder)), "apply", str(patch)]
    if branch:
        return ["git", "-C", str(folder), "merge", "--no-edit", branch]
    task_origin = read_origin(folder)
    answer = task_origin.answers.get(variant) if task_origin else None
    if answer is None:
        return ["git", "-C", str(folder), "apply", "-p2", str(patch)]
    return [] if answer.endswith(".json") else ["patch", answer, str(patch)]
