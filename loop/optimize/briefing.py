"""Ask for one change: find the workload with most to gain, write a brief, get an edit."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from loop.agents import proposing
from loop.base.documents import sums, to_json, write_atomic
from loop.base.errors import WorkFailed
from loop.base.places import shipped
from loop.base.processes import Tick, Waiting, run_side_by_side
from loop.builds import build
from loop.gate.kernel import planned_check_sets, workloads
from loop.model.base import Model
from loop.model.campaign import Campaign, Proposal
from loop.model.change import DecisionOutput, hosts_of, kept_gains
from loop.model.measurement import Measurement
from loop.model.output import MeasureOutput, outputs_by_run, read_output
from loop.model.profile import FACTS
from loop.model.target import PythonVariant
from loop.optimize import session_changes
from loop.optimize.comparisons import CHECK_NOTE_FILE, CheckNote, compare_beforehand
from loop.optimize.model import Brief, BriefOutput, Standing
from loop.optimize.section import ai_use_text
from loop.optimize.session_changes import SessionChanges, session_worktree, workshop_of
from loop.profile import actions as profiling
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.templates import markdown_environment
from loop.repository.worktree import Worktree, copy_worktree, make_from_checkout
from loop.steps.context import Context, Result, RunningAction

MOST_ENDINGS, LONGEST_ENDING = 6, 300  # Unjudged candidates in a brief; characters of each.
KEEPING_RULE = (  # The rule by which a change is kept.
    "right on every check, found clean by the sanitizer where there is a GPU, slower than the "
    "incumbent on no workload, faster on one at least, and {:.3g}x its speed in the mean"
)
MOST_TRIED = 12  # Most rejected ideas in a brief, of this session and of earlier ones each.
TRIED_HEADS = (">Change", "Variant", "Outcome", ">Speed", "Why", "Patch")
LOST_HEADS = ("Session", "Files", ">Speed", "Why it was taken back", "Patch")


def render_brief(templates: Path, brief: Brief) -> str:
    """The brief as Markdown: facts of the profile, and changes that this session judged or earlier
    ones reverted (`brief.lost`). `templates`: the folder of brief.md.j2."""
    profile, facts, leaf, leaf_text = brief.profile, None, None, ""
    if profile is not None:
        leaf, leaf_text = profiling.describe_leaf(profile)  # Where its decision tree ended.
        rows = []
        for name, meaning in FACTS.items():
            fact = profile.facts.get(name)
            if fact is not None or name in profile.unknown:
                source = profile.sources.get(name) or profile.unknown.get(name, "")
                value = "unknown" if fact is None else profiling.fact_text(fact)
                rows.append((name, value, meaning, source))
        facts = drop_empty_columns(("Fact", ">Value", "What it is", "Source"), rows)
    tried, reverted = [], []
    for change in (*brief.tried[-MOST_TRIED:], *brief.lost[-MOST_TRIED:]):
        speed = say.speedup_text(change.gain) if change.gain else "not timed"
        cells = speed, change.reason, change.patch
        if change.session:  # An earlier one.
            reverted.append((change.session, ", ".join(change.files), *cells))
        else:
            tried.append((str(change.number), change.variant, change.outcome, *cells))
    template = markdown_environment(templates).get_template("brief.md.j2")
    tables = {"facts": facts, "tried": drop_empty_columns(TRIED_HEADS, tried)}
    tables["lost"] = drop_empty_columns(LOST_HEADS, reverted)
    profiled = {"enough": profiling.SUFFICIENT_RATIO, "leaf": leaf, "where": leaf_text}
    return template.render(brief=brief, **profiled, **tables)


class GainTerms(Model):
    """When to keep a change."""

    gain: Annotated[float, Field(ge=0, le=10)] = 0.01
    """Share by which its mean speed has to exceed the incumbent's: 0.01 is 1 %."""


def brief(context: Context, arguments: GainTerms) -> RunningAction[BriefOutput]:
    """Get one edit in loop's own worktree: by proposers, or by a pause in which the user edits.
    Passes without one (`declined`) if no further change is wanted or the campaign is over."""
    workshop, end_reason = workshop_of(context), None
    if workshop.is_declined:
        end_reason = "no further change is wanted"
    elif not unjudged_edits(context):
        end_reason = sum_spending(context).explain_end(context.task.campaign)
    if end_reason is not None:
        return Result(BriefOutput(ok=True, declined=True, message=end_reason))
    focus, standings = choose_focus(context) or (None, ())
    if focus is None:
        why = "nothing to improve: no variant that may be edited has a speed to be trusted"
        hint = context.command("run", "session", "baseline")
        return Result(BriefOutput(ok=False, message=why, hint=hint))
    yield Tick("preparing the worktree")
    tree = session_worktree(context, workshop)
    if tree is None:
        tree = make_from_checkout(context.task.folder, workshop.worktree)
        error = yield from compiler_errors(context, focus.variant, tree)  # Before any edit.
        if error:
            tree.remove()
            message = f"{focus.variant} cannot be edited in a worktree: {error.splitlines()[0]}"
            needs = "what it is built from has to be in git or beside its sources"
            raise WorkFailed(message, f"{needs}: no submodules, no ignored headers")
        tree.note_owner(workshop.briefs_folder.parent)
    brief = yield from _write_brief(context, focus, standings, tree, arguments.gain)
    if context.task.campaign.is_unattended:
        return (yield from offer_candidate(context, brief, tree, arguments.gain))
    result = _accept_edit(context, brief, tree)
    error = "" if result.paused else (yield from compiler_errors(context, brief.variant, tree))
    return _pause(brief, f"the edit does not compile: {error.splitlines()[0]}") if error else result


def choose_focus(context: Context) -> tuple[Measurement, tuple[Standing, ...]] | None:
    """The timing with most time to save, of main variants that may be edited (of others if there is
    none), and its variant's speeds against the baseline; None without any speed."""
    bench, variants = context.bench, context.bench.target.variants
    measured, worst = dict[str, MeasureOutput](), dict[str, Measurement]()
    outputs = SessionChanges(context.finished).incumbent_outputs(MeasureOutput)
    for output in outputs:  # The latest one counts.
        names = (row.variant for row in (*output.verdicts, *output.measurements))
        measured |= dict.fromkeys(names, output)
    for name, output in measured.items():
        if name in variants and session_changes.may_edit_variant(bench.target, bench.folder, name):
            worst |= profiling.worst_measurements(output, [name])
    # Examples and baselines only if no main variant may be edited.
    main = [timing for name, timing in worst.items() if variants[name].role == "main"]
    candidates = main or [*worst.values()]
    if not candidates:
        return None

    def saved_share(timing: Measurement) -> float:
        return profiling.saved_time_share(timing.ratio, timing.workload.weight)

    focus = min(candidates, key=lambda timing: (-saved_share(timing), timing.ratio))
    standings = []
    for timing in sorted(measured[focus.variant].measurements, key=saved_share, reverse=True):
        if (timing.variant, timing.against) == (focus.variant, "baseline"):
            row = {"ratio": timing.ratio, "interval": timing.interval, "worth": saved_share(timing)}
            standings.append(Standing(workload=timing.workload.name, **row))
    return focus, tuple(standings)


def _write_brief(
    context: Context, focus: Measurement, ratios: tuple[Standing, ...], tree: Worktree, gain: float
) -> Waiting[Brief]:
    """Write the brief of a change as Markdown and as JSON. `focus`: the timing to be improved.
    `gain`: the share by which a change has to be faster."""
    workshop, changes, name = workshop_of(context), SessionChanges(context.finished), focus.variant
    variant = build.buildable_variants(context.bench, [name])[name]
    users_by_file = yield from session_changes.find_editable_files(context, name)
    own_files = [file for file, users in users_by_file.items() if not users]
    for change in changes.judged_changes:
        new_files = change.files if change.outcome == "kept" else ()  # Not the target's.
        own_files += [file for file in new_files if file not in users_by_file]
    endings: dict[str, str] = {}  # How a candidate ended, to the line on the last that ended so.
    for proposal in changes.proposals:
        if proposal.ended not in ("edited", "interrupted"):
            line = f"candidate {proposal.number}: {proposal.text}"
            endings[proposal.text] = line[:LONGEST_ENDING]
    campaign = context.task.campaign
    profiled = changes.incumbent_outputs(profiling.ProfileOutput)
    profiles = (profile for output in profiled for profile in output.profiles)
    brief = Brief(
        number=len(changes.judged_changes) + 1,
        variant=name,
        title=variant.title,
        workload=focus.workload.name,
        profile={profile.variant: profile for profile in profiles}.get(name),  # The latest one.
        folder=str(tree.target),
        files=tuple(dict.fromkeys(own_files)),
        shared={file: users for file, users in users_by_file.items() if users},
        ratios=ratios,
        contract=contract(context, variant),
        check=f"loop kernels check {name} --json",
        answer=str(tree.root / proposing.ANSWER_FILE) if campaign.is_unattended else "",
        rule=KEEPING_RULE.format(1 + gain),
        timed=tuple(workload.name for workload in workloads(context, context.task.plan.workloads)),
        checks=tuple(planned_check_sets(context)),
        tried=changes.judged_changes,
        fell=tuple(endings.values())[-MOST_ENDINGS:],
        lost=tuple(change for change in context.past.reverted_changes if change.variant == name),
        resume=workshop.resume_command,
        decline=f"{workshop.resume_command} --decline",
    )
    workshop.briefs_folder.mkdir(parents=True, exist_ok=True)
    page = session_changes.brief_path(workshop.briefs_folder, brief)
    write_atomic(page, render_brief(shipped("templates"), brief))
    write_atomic(page.with_suffix(".json"), to_json(brief))
    return brief


def contract(context: Context, variant: build.Buildable) -> dict[str, str]:
    """What an edit must not change, in words: call, compiler, tensors, types and tolerance."""
    target = context.bench.target
    dtype = target.dtypes[context.bench.device]
    inputs = [f"{name} [{sizes}]" for name, sizes in target.signature.inputs.items()]
    outputs = [f"[{sizes}]" for sizes in target.signature.outputs.values()]
    generator = target.generator.python if target.generator else "the reference"
    allowed = target.tolerance[dtype]
    if isinstance(variant, PythonVariant):
        kind = "a class" if target.modules else "a function"
        passing = "writes to outputs that follow its inputs"
        if variant.passing == "returned":
            passing = "returns its outputs"
        interface = {"Entry": f"{variant.module}:{variant.function}, {kind} that {passing}"}
    else:
        compiler = " ".join([variant.build.compiler, *variant.build.flags])
        interface = {"Entry": f"{variant.entry}, by loop_kernel.h", "Compiler": compiler}
    return {
        **interface,
        "Inputs": ", ".join(inputs) or f"those of {generator}",
        "Output": ", ".join(outputs) or f"that of {target.reference.python}",
        "Attributes": ", ".join(target.signature.attributes) or "none",
        "Types": ", ".join(variant.dtypes),
        "Tolerance": f"{dtype}: {allowed.atol:g} + {allowed.rtol:g} x the right answer in float64",
    }


def _accept_edit(context: Context, brief: Brief, tree: Worktree) -> Result[BriefOutput]:
    """The edit in the worktree, saved, if it may be judged; else a pause that says why not: nothing
    is edited, a file may not change, or an earlier session reverted this very edit."""
    workshop, lines_by_file = workshop_of(context), tree.changed_lines()
    existing = tree.committed_files()
    page = session_changes.brief_path(workshop.briefs_folder, brief)
    if not lines_by_file:
        return _pause(brief, f"one change to {brief.variant} is asked for: {page}")
    for file in lines_by_file:
        if not session_changes.may_change(file, brief.files, existing):
            why, others = f"{file} may not change", brief.shared.get(file, ())
            if others:
                options = " ".join(f"--variant {name}" for name in (brief.variant, *others))
                why += f": {', '.join(others)} read it, not judged here; {options} begins with all"
            return _pause(brief, f"{why} (brief: {page}); take that back in {brief.folder}")
    edit = session_changes.save_edit(workshop, brief, tree)
    for reverted in brief.lost:
        if reverted.digest == edit.digest and not context.task.retries_lost_changes:
            why = f"{reverted.session}: {reverted.reason} (--again judges it anew)"
            return _pause(brief, f"this very change was taken back in {why}")
    return Result(edit)


def _pause(brief: Brief, message: str) -> Result[BriefOutput]:
    """A result that pauses the session until the user has edited and resumes it."""
    output = BriefOutput(ok=True, message=message, hint=f"edit, then: {brief.resume}", brief=brief)
    return Result(output, paused=True)


MAX_ERROR_CHARACTERS = 4000  # Most characters of a compiler's errors that a proposer gets.
MAX_REPAIRS = 2  # How often a proposer may repair an edit that does not compile.


def _run_candidate(
    context: Context,
    brief: Brief,
    tree: Worktree,
    head: str,
    number: int,
    limit_s: float,
    usd: float | None,
) -> Waiting[None]:
    """Run one proposer in a worktree of its own; save its proposal. If its edit fails to compile,
    it runs again with the errors, `MAX_REPAIRS` times at most. Until it ends, the saved proposal
    says `interrupted`, for a session that is killed. `head`: the incumbent's commit."""
    workshop, runs = workshop_of(context), list[Proposal]()
    page = workshop.briefs_folder / "candidates" / f"{number:04}-brief.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    proposal_file, patch = page.with_name(f"{number:04}.json"), page.with_name(f"{number:04}.patch")
    sums.write_sealed(proposal_file, Proposal(number=number, ended="interrupted"))
    place = workshop.worktree.with_name(f"{workshop.worktree.name}.{number}")
    try:
        copy = copy_worktree(tree, place)
        copy.note_owner(workshop.briefs_folder.parent)
        # Checks there share the locks; their cache is their own, so the gate's builds are safe.
        locks, builds = context.bench.cache / "locks", copy.root / proposing.CACHE_FOLDER / "builds"
        locks.mkdir(parents=True, exist_ok=True)
        builds.mkdir(parents=True, exist_ok=True)
        (builds / "locks").symlink_to(locks)
        incumbents = SessionChanges(context.finished).incumbents
        fields = {"workload": brief.workload, "sets": (*context.task.plan.workloads, *brief.checks)}
        note = CheckNote(incumbents=incumbents, builds=str(context.bench.cache), **fields)
        sums.write_sealed(copy.root / ".git" / CHECK_NOTE_FILE, note)
        brief_page = session_changes.brief_path(workshop.briefs_folder, brief)
        for suffix in (".md", ".json"):  # The brief, with this candidate's folder.
            text = brief_page.with_suffix(suffix).read_text()
            write_atomic(page.with_suffix(suffix), text.replace(str(tree.root), str(copy.root)))
        while True:
            task = proposing.ProposerTask(
                number=number,
                campaign=context.task.campaign,
                brief_page=page,
                root=copy.root,
                folder=copy.target,
                locks=locks,
                output=page.with_name(f"{number:04}-{len(runs) + 1}.txt"),
                limit_s=limit_s - sum(run.seconds for run in runs),
                usd=usd,
            )
            runs.append((yield from proposing.run_proposer(task)))
            tree.revert(head)  # A proposer may have written to it.
            files, left_out = session_changes.take_edit(brief, tree, copy, patch)
            errors = ""
            if files:
                errors = yield from compiler_errors(context, brief.variant, copy)
            if not errors or len(runs) > MAX_REPAIRS or runs[-1].ended != "edited":
                break
            errors_text = f"## Your edit does not compile\n\n```\n{errors}\n```\n"
            write_atomic(page, f"{page.read_text()}\n{errors_text}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    ending: dict[str, Any] = {"seconds": sum(run.seconds for run in runs), "left_out": left_out}
    ending["use"] = proposing.sum_ai_use(runs)
    if errors:
        ending |= {"ended": "uncompiled", "said": errors.splitlines()[0]}
    elif files:
        ending |= {"ended": "edited", "files": files, "patch": str(patch)}
    elif runs[-1].ended == "edited":
        ending["ended"] = "unedited"
    sums.write_sealed(proposal_file, runs[-1].model_copy(update=ending))


def compiler_errors(context: Context, name: str, tree: Worktree) -> Waiting[str]:
    """Compile an edited variant in a worktree; the beginning of the errors, empty without any."""
    bench = context.bench
    places = {"cache": bench.cache, "include": bench.include}
    variant = build.buildable_variants(bench, [name])[name]
    try:
        yield from build.build(name, variant, tree.target, **places, limit_s=context.kill_after_s)
    except build.BuildFailed as failed:
        return f"{failed.message}\n{failed.log}"[:MAX_ERROR_CHARACTERS]
    return ""


@dataclass(frozen=True)
class CampaignSpent:
    """What a campaign has spent and gained so far."""

    candidates: int = 0
    since_last_kept: int = 0
    seconds: float = 0.0  # Wall time of the session.
    usd: float = 0.0  # Known dollars: AI and machine.
    tokens: int = 0  # Known tokens.
    best_speedup: float = 1.0  # The largest: of a variant's kept changes, or of one search.
    is_proposer_done: bool = False  # Whether the proposer said that it has no more ideas.

    def remaining_s(self, campaign: Campaign, usd_per_hour: float = 0.0) -> float:
        """Seconds of measuring that the budgets still allow; infinite without a budget."""
        budgets_s = [campaign.minutes * 60 - self.seconds] if campaign.minutes else []
        if campaign.usd and usd_per_hour:
            budgets_s.append((campaign.usd - self.usd) / usd_per_hour * 3600)
        return max(0.0, min(budgets_s, default=math.inf))

    def explain_end(self, campaign: Campaign) -> str | None:
        """Why the campaign ends; None if it continues."""
        limits = (
            (campaign.candidates, self.candidates, "its {:g} candidates are used up"),
            (campaign.minutes, self.seconds / 60, "its {:g} minutes are over"),
            (campaign.usd, self.usd, "its {:g} dollars are spent"),
            (campaign.tokens, self.tokens, "its {:g} tokens are used"),
            (campaign.target, self.best_speedup, "its target of {:g}x is reached"),
            (campaign.stall, self.since_last_kept, "nothing was kept in {:g} candidates"),
        )
        if self.is_proposer_done:
            return "the proposer has nothing more to propose"
        for limit, spent, text in limits:
            if limit is not None and spent >= limit:
                return text.format(limit)
        return None


def sum_spending(context: Context) -> CampaignSpent:
    """What the campaign has spent and gained so far. Dollars: known costs of AI, and the machine's
    price for the time of all ended steps, with hosts."""
    changes = SessionChanges(context.finished)
    use = proposing.sum_ai_use(proposing.read_proposals(workshop_of(context).briefs_folder.parent))
    is_unattended = context.task.campaign.is_unattended
    since_last_kept = 0  # Candidates that were judged or refused.
    for record in context.finished if is_unattended else ():
        brief, decision = read_output(record, BriefOutput), read_output(record, DecisionOutput)
        if brief:
            since_last_kept += sum(proposal.ended != "edited" for proposal in brief.proposals)
        if decision:
            since_last_kept = 0 if decision.kept else since_last_kept + 1
    seconds = sum(record.seconds for record in context.finished)
    machine_usd = seconds / 3600 * context.task.usd_per_hour
    machine_usd += sum(host.usd for host in hosts_of(context.finished))
    return CampaignSpent(
        candidates=len(changes.proposals) if is_unattended else len(changes.judged_changes),
        since_last_kept=since_last_kept,
        seconds=seconds,
        usd=(use.usd or 0.0) + machine_usd,
        tokens=use.total_tokens,
        best_speedup=max((gain.ratio for gain in kept_gains(context.finished)), default=1.0),
        is_proposer_done=any(proposal.ended == "done" for proposal in changes.proposals),
    )


def unjudged_edits(context: Context) -> list[Proposal]:
    """Proposed edits that no step has judged or refused yet, by number."""
    settled_numbers = {record.output.get("candidate") for record in context.finished}
    recorded = SessionChanges(context.finished).proposals
    settled_numbers |= {proposal.number for proposal in recorded if proposal.ended != "edited"}
    saved = proposing.read_proposals(workshop_of(context).briefs_folder.parent)
    return [edit for edit in saved if edit.ended == "edited" and edit.number not in settled_numbers]


def offer_candidate(
    context: Context, brief: Brief, tree: Worktree, least_gain: float
) -> RunningAction[BriefOutput]:
    """Put an unjudged edit into the worktree for the gate; passes without any. If none waits, run
    proposers (commands) first, in parallel, within the campaign's budgets. Other edits wait for
    later steps. Pauses if a proposer's program needs a login. `least_gain`: as a share."""
    changes, workshop = SessionChanges(context.finished), workshop_of(context)
    campaign, session = context.task.campaign, workshop.briefs_folder.parent
    tree.revert()
    first_new = len(proposing.read_proposals(session)) + 1
    if not unjudged_edits(context):
        place = workshop.worktree
        for leftover in place.parent.glob(f"{place.name}.*"):  # Of a killed session.
            shutil.rmtree(leftover, ignore_errors=True)
        spent, head = sum_spending(context), tree.head
        usd = max(0.01, campaign.usd - spent.usd) / campaign.width if campaign.usd else None
        limit_s = min(campaign.proposer_minutes * 60, spent.remaining_s(campaign))
        numbers = range(first_new, first_new + campaign.width)
        terms = (context, brief, tree, head)
        runs = [_run_candidate(*terms, number, limit_s, usd) for number in numbers]
        try:
            with proposing.kill_new_orphans():
                yield from run_side_by_side(runs, len(runs))
        finally:
            tree.revert(head)
    saved = proposing.read_proposals(session)
    reported = {proposal.number for proposal in changes.proposals}
    to_report = {proposal.number: proposal for proposal in saved if proposal.number not in reported}
    unjudged = unjudged_edits(context)
    ordered, not_faster, jobs = yield from compare_beforehand(context, tree, unjudged, least_gain)
    briefs = outputs_by_run(context.finished, BriefOutput)
    digests = {past.digest for _, past in briefs if past.digest}
    edit = None
    for candidate in ordered:
        proposal = session_changes.apply_proposal(tree, candidate, digests)
        to_report[proposal.number] = proposal
        if proposal.ended == "edited":
            edit = session_changes.save_edit(workshop, brief, tree)
            break
    texts = []
    for other in to_report.values():
        if edit is None or other.ended != "edited":
            texts.append(f"candidate {other.number}: {other.text}")
    if edit is not None:
        idea = f" ({proposal.idea})" if proposal.idea else ""
        left_out = f", not taken: {', '.join(proposal.left_out)}" if proposal.left_out else ""
        files = f"{', '.join(edit.files)} ({edit.lines} lines){left_out}"
        texts.append(f"candidate {proposal.number}{idea}: {files}")
    use = proposing.sum_ai_use(saved)
    kept_count = sum(change.outcome == "kept" for change in changes.judged_changes)
    texts.append(f"so far {say.count(len(saved), 'candidate')}, {kept_count} kept")
    message = f"{'; '.join(texts)}, {ai_use_text(use)}"
    report = {"message": message, "proposals": tuple(to_report.values())}
    if edit is not None:
        is_slow = proposal.number in not_faster
        judged = {"candidate": proposal.number, "not_faster": is_slow, "jobs": jobs}
        return Result(edit.model_copy(update={**report, **judged}))
    logins = [number for number, other in to_report.items() if other.ended == "login"]
    needs_login = any(number >= first_new for number in logins)
    hint = f"log in to what `{campaign.proposer}` runs, then: {brief.resume}"
    output = BriefOutput(ok=True, brief=brief, hint=hint if needs_login else None, **report)
    return Result(output, paused=needs_login)
