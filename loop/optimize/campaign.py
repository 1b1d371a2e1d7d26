"""The rounds of a campaign: whether to request candidates, and which one to judge next."""

import math
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from loop.agents import proposing
from loop.agents.proposing import CACHE_FOLDER, ProposerTask, kill_new_orphans, read_proposals, run_proposer
from loop.base.documents import sums, write_atomic
from loop.base.processes import Tick, run_side_by_side
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.model.campaign import Campaign, Proposal
from loop.model.change import Brief, BriefOutput, hosts_of, kept_gains
from loop.optimize.comparisons import CHECK_NOTE_FILE, CheckNote, order_by_gain
from loop.optimize.edits import AcceptedEdit, apply_proposal, brief_path, save_edit
from loop.optimize.section import ai_use_text
from loop.optimize.session_changes import SessionChanges, workshop_of
from loop.repository import worktree
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, RunningAction

MAX_ERROR_CHARACTERS = 4000
"""Most characters of a compiler's errors that a proposer gets."""
MAX_REPAIRS = 2
"""How often a proposer may repair an edit that does not compile."""


def _run_proposers(
    context: Context, brief: Brief, tree: Worktree, first_number: int
) -> Generator[Tick, None, None]:
    """Run the campaign's proposers in parallel, numbered from `first_number`; save each proposal
    when it ends. `tree`: the session's worktree, with the incumbent."""
    session_tree, campaign = workshop_of(context).worktree, context.task.campaign
    for leftover in session_tree.parent.glob(f"{session_tree.name}.*"):  # Of a killed session.
        shutil.rmtree(leftover, ignore_errors=True)
    spent = sum_spending(context)
    remaining_s = campaign.minutes * 60 - spent.seconds if campaign.minutes else math.inf
    usd = max(0.01, campaign.usd - spent.usd) / campaign.width if campaign.usd else None
    limit_s = min(campaign.proposer_minutes * 60, remaining_s)
    numbers, head = range(first_number, first_number + campaign.width), tree.head
    try:
        with kill_new_orphans():
            runs = []
            for number in numbers:
                runs.append(_run_candidate(context, brief, tree, head, number, limit_s, usd))
            yield from run_side_by_side(runs, len(numbers))
    finally:
        tree.revert(head)


def _run_candidate(
    context: Context, brief: Brief, tree: Worktree, head: str, number: int, limit_s: float, usd: float | None
) -> Generator[Tick, None, None]:
    """Run one proposer in a worktree of its own, and save its proposal. If its edit does not
    compile, it runs again with the errors, `MAX_REPAIRS` times at most; only a proposal that
    compiles has a patch. Before it ends, the saved proposal says `interrupted`, for a session that
    is killed. `head`: the incumbent's commit."""
    workshop, runs = workshop_of(context), list[Proposal]()
    page = workshop.briefs_folder / "candidates" / f"{number:04}-brief.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    proposal_file = page.with_name(f"{number:04}.json")
    sums.write_sealed(proposal_file, Proposal(number=number, ended="interrupted"))
    place = workshop.worktree.with_name(f"{workshop.worktree.name}.{number}")
    try:
        copy = worktree.copy_worktree(tree, place)
        copy.note_owner(workshop.briefs_folder.parent)
        _prepare_checks(context, brief, copy)
        for suffix in (".md", ".json"):  # The brief, with this candidate's folder.
            text = brief_path(workshop.briefs_folder, brief).with_suffix(suffix).read_text()
            write_atomic(page.with_suffix(suffix), text.replace(str(tree.root), str(copy.root)))
        while True:
            task = ProposerTask(
                number=number,
                campaign=context.task.campaign,
                brief_page=page,
                root=copy.root,
                folder=copy.target,
                locks=context.bench.cache / "locks",
                output=page.with_name(f"{number:04}-{len(runs) + 1}.txt"),
                limit_s=limit_s - sum(run.seconds for run in runs),
                usd=usd,
            )
            runs.append((yield from run_proposer(task)))
            tree.revert(head)  # A proposer may have written to it.
            edit = AcceptedEdit.of(brief, tree, copy)
            refusal = ""
            if edit.files:
                refusal = yield from compiler_errors(context, brief.variant, copy)
            if not refusal or len(runs) > MAX_REPAIRS or runs[-1].ended != "edited":
                break
            write_atomic(page, f"{page.read_text()}\n## Your edit does not compile\n\n```\n{refusal}\n```\n")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    fields: dict[str, Any] = {"seconds": sum(run.seconds for run in runs), "left_out": edit.refused_files}
    fields["use"] = proposing.sum_ai_use(run.use for run in runs if run.use)
    if refusal:
        fields |= {"ended": "uncompiled", "said": refusal.splitlines()[0]}
    elif edit.files:
        tree.revert(head)
        patch = edit.as_patch(tree, page.with_name(f"{number:04}.patch"))
        fields |= {"ended": "edited", "files": tuple(edit.files), "patch": str(patch)}
    elif runs[-1].ended == "edited":
        fields["ended"] = "unedited"
    sums.write_sealed(proposal_file, runs[-1].model_copy(update=fields))


def _prepare_checks(context: Context, brief: Brief, copy: Worktree) -> None:
    """Let `loop kernels check` in a candidate's worktree compare with the incumbent. Its cache is
    its own, and its locks are shared: so a proposer cannot edit the builds that the gate judges."""
    locks, builds = context.bench.cache / "locks", copy.root / CACHE_FOLDER / "builds"
    locks.mkdir(parents=True, exist_ok=True)
    builds.mkdir(parents=True, exist_ok=True)
    (builds / "locks").symlink_to(locks)
    check_note = CheckNote(
        incumbents=SessionChanges(context.finished).incumbents,
        builds=str(context.bench.cache),
        workload=brief.workload,
        sets=(*context.task.plan.workloads, *brief.checks),
    )
    sums.write_sealed(copy.root / ".git" / CHECK_NOTE_FILE, check_note)


def compiler_errors(context: Context, name: str, tree: Worktree) -> Generator[Tick, None, str]:
    """The compiler's errors for an edited variant in a worktree; empty if it compiles."""
    bench = context.bench
    places = {"cache": bench.cache, "include": bench.include}
    variant = build.buildable_variants(bench, [name])[name]
    try:
        yield from build.build(name, variant, tree.target, **places, limit_s=context.kill_after_s)
    except BuildFailed as failed:
        return f"{failed.message}\n{failed.log}"[:MAX_ERROR_CHARACTERS]
    return ""


@dataclass(frozen=True)
class CampaignSpent:
    """What a campaign has spent and gained so far."""

    candidates: int = 0
    since_last_kept: int = 0
    seconds: float = 0.0
    """Wall time of the session."""
    usd: float = 0.0
    """Known dollars: AI and machine."""
    tokens: int = 0
    """Known tokens."""
    best_speedup: float = 1.0
    """Speedup by the kept changes of one variant, or by one search: the largest."""
    is_proposer_done: bool = False
    """Whether the proposer said that it has no more ideas."""

    def remaining_s(self, campaign: Campaign, usd_per_hour: float = 0.0) -> float:
        """Seconds of measuring that the budgets still allow; infinite without a budget."""
        bounds = [campaign.minutes * 60 - self.seconds] if campaign.minutes else []
        bounds += [(campaign.usd - self.usd) / usd_per_hour * 3600] if campaign.usd and usd_per_hour else []
        return max(0.0, min(bounds, default=math.inf))

    def explain_end(self, campaign: Campaign) -> str | None:
        """Why the campaign ends; None if it continues."""
        minutes_text = "its {:g} minutes are over"
        if not self.candidates:
            minutes_text += ", of which preparing took all: no candidate was proposed"
        limits = (
            (campaign.candidates, self.candidates, "its {:g} candidates were proposed"),
            (campaign.minutes, self.seconds / 60, minutes_text),
            (campaign.usd, self.usd, "its {:g} dollars are spent"),
            (campaign.tokens, self.tokens, "its {:g} tokens are used"),
            (campaign.target, self.best_speedup, "its target of {:g}x is reached"),
            (campaign.stall, self.since_last_kept, "nothing was kept in {:g} candidates"),
        )
        if self.is_proposer_done:
            return "the proposer has nothing more to propose"
        reached = (text.format(limit) for limit, spent, text in limits if limit is not None and spent >= limit)
        return next(reached, None)


def sum_spending(context: Context) -> CampaignSpent:
    """What the campaign has spent and gained so far."""
    changes, proposals = (
        SessionChanges(context.finished),
        read_proposals(workshop_of(context).briefs_folder.parent),
    )
    use = proposing.sum_ai_use(proposal.use for proposal in proposals if proposal.use)
    is_unattended = context.task.campaign.is_unattended
    seconds = sum(record.seconds for record in context.finished)
    machine_usd = seconds / 3600 * context.task.usd_per_hour
    machine_usd += sum(host.usd for host in hosts_of(context.finished))
    return CampaignSpent(
        candidates=len(changes.proposals) if is_unattended else len(changes.judged_changes),
        since_last_kept=changes.count_since_last_kept if is_unattended else 0,
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
    saved = read_proposals(workshop_of(context).briefs_folder.parent)
    return [edit for edit in saved if edit.ended == "edited" and edit.number not in settled_numbers]


def offer_candidate(context: Context, brief: Brief, tree: Worktree) -> RunningAction[BriefOutput]:
    """Put an unjudged edit into the worktree for the gate; run the proposers first if there is none. Without any
    edit the step passes with none. Pauses the session if a proposer's program has to be logged in."""
    changes, workshop, terms = SessionChanges(context.finished), workshop_of(context), context.task.campaign
    tree.revert()
    first_new = len(read_proposals(workshop.briefs_folder.parent)) + 1
    if not unjudged_edits(context):
        yield from _run_proposers(context, brief, tree, first_new)
    saved = read_proposals(workshop.briefs_folder.parent)
    reported = {proposal.number for proposal in changes.proposals}
    unreported = {proposal.number: proposal for proposal in saved if proposal.number not in reported}
    ordered, jobs = yield from order_by_gain(context, tree, unjudged_edits(context))
    # With jobs, a conflicting edit has already lost to the kept one, so it does not replace it.
    first_base = "" if terms.executor else changes.first_base
    edit = None
    for candidate in ordered:
        proposal = apply_proposal(tree, candidate, changes.judged_patch_hashes, first_base)
        unreported[proposal.number] = proposal
        if proposal.ended == "edited":
            edit = save_edit(workshop, brief, tree)
            break
    texts = []
    for other in unreported.values():
        if edit is None or other.ended != "edited":
            texts.append(f"candidate {other.number}: {other.text}")
    if edit is not None:
        idea = f" ({proposal.idea})" if proposal.idea else ""
        text = f"candidate {proposal.number}{idea}: {', '.join(edit.files)} ({edit.lines} lines)"
        left_out = f"not taken: {', '.join(proposal.left_out)}" if proposal.left_out else ""
        texts.append(", ".join(filter(None, (text, proposal.said, left_out))))
    use = proposing.sum_ai_use(proposal.use for proposal in saved if proposal.use)
    kept_count = sum(change.outcome == "kept" for change in changes.judged_changes)
    texts.append(f"so far {len(saved)} proposed, {kept_count} kept, {ai_use_text(use)}")
    report = {"message": "; ".join(texts), "proposals": tuple(unreported.values())}
    if edit is not None:
        return Result(edit.model_copy(update={**report, "candidate": proposal.number, "jobs": jobs}))
    needs_login = any(other.ended == "login" and other.number >= first_new for other in unreported.values())
    hint = f"log in to what `{terms.proposer}` runs, then: {brief.resume}" if needs_login else None
    return Result(BriefOutput(ok=True, brief=brief, hint=hint, **report), paused=needs_login)
