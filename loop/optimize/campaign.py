"""The rounds of a campaign: whether to request candidates, and which one to judge next."""

import math
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from loop.agents import proposing
from loop.agents.proposing import (
    ProposerResult,
    ProposerTask,
    child_processes,
    find_preset,
    kill_orphans,
    read_proposals,
    run_proposer,
)
from loop.base.documents import sums, write_atomic
from loop.base.processes import Tick, run_side_by_side
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.model.campaign import Ended, Proposal
from loop.model.change import Brief, BriefOutput, jobs_of
from loop.model.jobs import jobs_usd
from loop.optimize.checking import NOTE, CheckNote
from loop.optimize.edits import Taken, apply_proposal, current_edit, page_of
from loop.optimize.keeping import CampaignSpent
from loop.optimize.paired import best_first
from loop.optimize.session_changes import SessionChanges, workshop
from loop.repository import worktree
from loop.repository.worktree import Worktree, note_owner
from loop.steps.context import Context, Result, RunningAction

ANSWER = "loop-answer.json"
"""A file that a proposer may write at the top of its worktree."""
CACHE = "loop-cache"
"""Build cache of a candidate's checks, in `.git` of its worktree, and deleted with it."""
REPAIRS = 2
"""How often a proposer may repair an edit that does not compile."""


@dataclass(frozen=True)
class ProposalRound:
    """Candidates that are proposed in parallel."""

    context: Context
    brief: Brief
    tree: Worktree
    """The session's worktree, with the incumbent."""
    limit_s: float
    """Time limit of each proposer."""
    usd: float | None
    """Dollar limit of each proposer; None: no limit."""

    def ask(self, first: int) -> Generator[Tick, None, None]:
        """Run the proposers, numbered from `first`; save each proposal when it ends."""
        shop, before = workshop(self.context), child_processes()
        for killed in shop.tree.parent.glob(f"{shop.tree.name}.*"):
            shutil.rmtree(killed, ignore_errors=True)
        numbers = range(first, first + self.context.task.campaign.width)
        head = self.tree.head
        try:
            yield from run_side_by_side((self._candidate(number, head) for number in numbers), len(numbers))
        finally:
            kill_orphans(before)
            self._put_back(head)

    def _put_back(self, head: str) -> None:
        """Restore the incumbent if a proposer wrote to it, because edits are compared with it."""
        if self.tree.head != head or self.tree.changed():
            self.tree.revert(head)

    def _candidate(self, number: int, head: str) -> Generator[Tick, None, None]:
        """Run one proposer in a worktree of its own, and save its proposal."""
        context, shop = self.context, workshop(self.context)
        note = shop.notes / "candidates" / f"{number:04}.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        sums.write_sealed(note, Proposal(number=number, ended="interrupted"))
        place = shop.tree.with_name(f"{shop.tree.name}.{number}")
        try:
            copy = worktree.copy_of(self.tree, place)
            note_owner(copy, shop.notes.parent)
            # Own cache, shared locks: a proposer cannot edit the builds that the gate judges.
            locks, own = context.bench.cache / "locks", copy.root / ".git" / CACHE / "builds"
            for folder in (locks, own):
                folder.mkdir(parents=True, exist_ok=True)
            (own / "locks").symlink_to(locks)
            check = CheckNote(
                incumbents=SessionChanges(context.finished).incumbents,
                builds=str(context.bench.cache),
                workload=self.brief.workload,
                sets=(*context.task.plan.workloads, *self.brief.checks),
            )
            sums.write_sealed(copy.root / ".git" / NOTE, check)
            proposal = yield from self._proposed(number, copy, head)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        sums.write_sealed(note, proposal)

    def _proposed(self, number: int, copy: Worktree, head: str) -> Generator[Tick, None, Proposal]:
        """Run the proposer; if its edit does not compile, again with the compiler's errors."""
        campaign, context, notes = self.context.task.campaign, self.context, workshop(self.context).notes
        page = notes / "candidates" / f"{number:04}-brief.md"
        for suffix in (".md", ".json"):  # The brief, with this candidate's folder.
            text = page_of(notes, self.brief).with_suffix(suffix).read_text()
            write_atomic(page.with_suffix(suffix), text.replace(str(self.tree.root), str(copy.root)))
        preset = find_preset(campaign.proposer)
        isolated = proposing.isolation_command(copy.root, context.bench.cache / "locks", page.parent, preset)
        results: list[ProposerResult] = []
        while True:
            errand = ProposerTask(
                preset=preset,
                brief_page=page,
                folder=copy.target,
                answer=copy.root / ANSWER,
                limit_s=self.limit_s - sum(result.seconds for result in results),
                quiet_s=campaign.quiet_minutes * 60,
                usd=self.usd,
                variables=campaign.env,
                isolation=isolated,
                cache=copy.root / ".git" / CACHE,
            )
            result = yield from run_proposer(errand)
            results.append(result)
            write_atomic(page.with_name(f"{number:04}-{len(results)}.txt"), result.output)
            self._put_back(head)
            edit = Taken.of(self.brief, self.tree, copy)
            refusal = (yield from compiler_refusal(context, self.brief.variant, copy)) if edit.files else ""
            if not refusal or len(results) > REPAIRS or result.ended != "edited":
                break
            write_atomic(page, f"{page.read_text()}\n## Your edit does not compile\n\n```\n{refusal}\n```\n")
        ended: Ended = "edited" if edit.files else "unedited" if result.ended == "edited" else result.ended
        proposal = Proposal(
            number=number,
            ended="uncompiled" if refusal else ended,
            said=refusal.splitlines()[0] if refusal else result.last_line,
            seconds=sum(result.seconds for result in results),
            use=proposing.sum_ai_use([result.use for result in results]),
            idea=result.idea,
            isolated=bool(isolated),
            left_out=edit.left_out,
        )
        if proposal.ended != "edited":
            return proposal
        self._put_back(head)
        patch = edit.as_patch(self.tree, page.with_name(f"{number:04}.patch"))
        return proposal.model_copy(update={"files": tuple(edit.files), "patch": str(patch)})


def compiler_refusal(context: Context, name: str, copy: Worktree) -> Generator[Tick, None, str]:
    """The compiler's errors for an edited variant; empty if it compiles."""
    bench = context.bench
    places = {"cache": bench.cache, "include": bench.include}
    variant = build.buildable_variants(bench, [name])[name]
    try:
        yield from build.build(name, variant, copy.target, **places, limit_s=context.kill_after_s)
    except BuildFailed as failed:
        return f"{failed.message}\n{failed.log}"[:4000]
    return ""


def why_over(context: Context) -> str | None:
    """Why the campaign requests no more candidates; None if it does, or if an edit waits."""
    if waiting_edits(context):
        return None
    return spent_by(context).why_ended(context.task.campaign)


def spent_by(context: Context) -> CampaignSpent:
    """What the campaign has spent and gained so far."""
    past, proposals = SessionChanges(context.finished), read_proposals(workshop(context).notes.parent)
    use, unattended = proposing.sum_ai_use(p.use for p in proposals if p.use), context.task.campaign.is_unattended
    seconds = sum(record.seconds for record in context.finished)
    judging_s = sum(record.seconds for record in context.finished if record.action != "change.brief")
    machine_usd = seconds / 3600 * context.task.usd_per_hour + jobs_usd(jobs_of(context.finished))
    return CampaignSpent(
        candidates=len(past.proposals) if unattended else len(past.tried),
        without_gain=past.without_gain if unattended else 0,
        seconds=seconds,
        gpu_s=judging_s if context.bench.device == "cuda" else 0.0,
        usd=(use.usd or 0.0) + machine_usd,
        tokens=use.total_tokens,
        ratio=past.gained,
        done=any(proposal.ended == "done" for proposal in past.proposals),
    )


def waiting_edits(context: Context) -> list[Proposal]:
    """Proposed edits that are not judged yet."""
    judged = {record.output.get("candidate") for record in context.finished}
    ended = SessionChanges(context.finished).proposals
    judged |= {proposal.number for proposal in ended if proposal.ended != "edited"}
    proposals = read_proposals(workshop(context).notes.parent)
    return [proposal for proposal in proposals if proposal.ended == "edited" and proposal.number not in judged]


def next_candidate(context: Context, brief: Brief, tree: Worktree) -> RunningAction[BriefOutput]:
    """Take a waiting edit, or run the proposers for new ones; one edit goes to the gate."""
    past, shop, terms = SessionChanges(context.finished), workshop(context), context.task.campaign
    tree.revert()
    first = 1 + max((proposal.number for proposal in read_proposals(shop.notes.parent)), default=0)
    if not waiting_edits(context):
        spent = spent_by(context)
        left_s = terms.minutes * 60 - spent.seconds if terms.minutes else math.inf
        usd = max(0.01, terms.usd - spent.usd) / terms.width if terms.usd else None
        yield from ProposalRound(context, brief, tree, min(terms.proposer_minutes * 60, left_s), usd).ask(first)
    noted, known = read_proposals(shop.notes.parent), {proposal.number for proposal in past.proposals}
    fresh = {proposal.number: proposal for proposal in noted if proposal.number not in known}
    ordered, jobs = yield from best_first(context, tree, waiting_edits(context))
    back, offered = None, list[str]()
    for proposal in ordered:
        # With jobs, a conflicting edit has already lost to the kept one.
        start = "" if terms.executor else past.first_base
        proposal = fresh[proposal.number] = apply_proposal(tree, proposal, past.judged_edits, start)
        if proposal.ended == "edited":
            back = current_edit(shop, brief, tree)
            idea = f" ({proposal.idea})" if proposal.idea else ""
            edit = f"candidate {proposal.number}{idea}: {', '.join(back.files)} ({back.lines} lines)"
            left_out = f"not taken: {', '.join(proposal.left_out)}" if proposal.left_out else ""
            offered = [", ".join(filter(None, (edit, proposal.said, left_out)))]
            break
    others = [other for other in fresh.values() if back is None or other.ended != "edited"]
    kept = sum(change.outcome == "kept" for change in past.tried)
    texts = [*(f"candidate {other.number}: {other.text}" for other in others), *offered, so_far(noted, kept)]
    update = {"message": "; ".join(texts), "proposals": tuple(fresh.values())}
    if back is not None:
        return Result(back.model_copy(update={**update, "candidate": proposal.number, "jobs": jobs}))
    login = any(other.ended == "login" and other.number >= first for other in others)
    hint = f"log in to what `{terms.proposer}` runs, then: {brief.resume}" if login else None
    return Result(BriefOutput(ok=True, brief=brief, hint=hint, **update), paused=login)


def so_far(proposals: Sequence[Proposal], kept: int) -> str:
    """A campaign's state in one line: `so far 3 proposed, 1 kept, $0.25 of AI, 1,800 tokens`."""
    used = [proposal.use for proposal in proposals if proposal.use]
    use = proposing.sum_ai_use(used)
    part = " in part" if any(each.usd is None for each in used) else ""
    usd = f"${use.usd:.2f} of AI{part}" if use.usd is not None else "AI unknown"
    tokens = f"{use.total_tokens:,} tokens" if use.total_tokens else "tokens unknown"
    return f"so far {len(proposals)} proposed, {kept} kept, {usd}, {tokens}"
