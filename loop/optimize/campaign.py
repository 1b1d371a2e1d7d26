"""The rounds of a campaign: whether there is another one, and which candidate is judged next."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from loop.model.campaign import Proposal
from loop.model.change import Brief, BriefOutput, jobs_of
from loop.model.jobs import usd_of
from loop.model.money import AiUse
from loop.optimize import candidates
from loop.optimize.edits import handed_back, handed_over, page_of
from loop.optimize.paired import best_first
from loop.optimize.session_changes import SessionChanges, workshop
from loop.optimize.stopping import CampaignSpent, why_ended
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, Working


def why_over(context: Context) -> str | None:
    """Why the campaign asks for no further candidate; None while it does, or while one waits to be judged."""
    spent = spent_by(context)
    if waiting(SessionChanges(context.finished), workshop(context).notes):
        return None
    return why_ended(context.task.campaign, spent)


def spent_by(context: Context) -> CampaignSpent:
    """What the campaign has come to."""
    past, notes = SessionChanges(context.finished), workshop(context).notes
    unattended, used = context.task.campaign.unattended, used_by(notes)
    seconds = sum(record.seconds for record in context.finished)
    judging_s = sum(record.seconds for record in context.finished if record.action != "change.brief")
    return CampaignSpent(
        candidates=len(past.proposals) if unattended else len(past.tried),
        without_gain=past.without_gain if unattended else 0,
        seconds=seconds,
        gpu_s=judging_s if context.bench.device == "cuda" else 0.0,
        usd=dollars(used) + seconds / 3600 * context.task.usd_per_hour + usd_of(jobs_of(context.finished)),
        tokens=sum(model.tokens.total for use in used for model in use.models),
        ratio=past.gained,
        done=any(proposal.ended == "done" for proposal in past.proposals),
    )


def used_by(notes: Path) -> list[AiUse]:
    """What the proposers of a session used, as far as they told."""
    return [proposal.use for proposal in candidates.kept_in(notes).values() if proposal.use]


def dollars(used: list[AiUse]) -> float:
    """What of it is known in dollars."""
    return sum(use.usd or 0.0 for use in used)


def waiting(past: SessionChanges, notes: Path) -> list[Proposal]:
    """Edits that were proposed and are not judged yet."""
    judged = {record.output.get("candidate") for record in past.finished}
    settled = {proposal.number for proposal in past.proposals if proposal.ended != "edited"}
    proposals = candidates.kept_in(notes).values()
    return [
        proposal
        for proposal in proposals
        if proposal.ended == "edited" and proposal.number not in judged | settled
    ]


def next_candidate(context: Context, brief: Brief, tree: Worktree) -> Working[BriefOutput]:
    """One that waits, or one that its proposer makes now."""
    past, shop, terms = SessionChanges(context.finished), workshop(context), context.task.campaign
    tree.revert()
    first = max(candidates.kept_in(shop.notes), default=0) + 1
    if not waiting(past, shop.notes):
        spent = spent_by(context)
        left_s = terms.minutes * 60 - spent.seconds if terms.minutes else math.inf
        left_usd = max(0.01, terms.usd - spent.usd) if terms.usd else None
        limit_s = min(terms.proposer_minutes * 60, left_s)
        page = page_of(shop.notes, brief)
        round_ = candidates.ProposalRound(context, shop, brief, page, tree, terms, limit_s, left_usd, tree.head)
        yield from candidates.ask(round_, first)
    known, so_far = {proposal.number for proposal in past.proposals}, _so_far(past, shop.notes)
    fresh = {
        number: proposal for number, proposal in candidates.kept_in(shop.notes).items() if number not in known
    }
    ordered, jobs = yield from best_first(context, tree, waiting(past, shop.notes))
    for proposal in ordered:
        # Jobs compared all of a round: one that conflicts lost to what was kept.
        start = "" if terms.executor else past.first_base
        fresh[proposal.number] = handed_over(shop, tree, proposal, past.judged_edits, start)
        if fresh[proposal.number].ended == "edited":
            back = handed_back(shop, brief, tree.changed(), tree)
            ended = tuple(proposal for proposal in fresh.values() if proposal.ended != "edited")
            message = "; ".join([*_told(ended), _offered(fresh[proposal.number], back), so_far])
            also = {"candidate": proposal.number, "proposals": tuple(fresh.values()), "jobs": jobs}
            return Result(back.model_copy(update={**also, "message": message}))
    ended = tuple(fresh.values())
    message = "; ".join([*_told(ended), so_far])
    login = any(proposal.ended == "login" and proposal.number >= first for proposal in ended)
    hint = f"log in to what `{terms.proposer}` runs, then: {brief.resume}" if login else None
    return Result(BriefOutput(ok=True, brief=brief, message=message, hint=hint, proposals=ended), paused=login)


def _offered(proposal: Proposal, back: BriefOutput) -> str:
    """What is judged next, in words."""
    left_out = f", not taken: {', '.join(proposal.left_out)}" if proposal.left_out else ""
    idea = f" ({proposal.idea})" if proposal.idea else ""
    instead = f", {proposal.said}" if proposal.said else ""
    return f"candidate {proposal.number}{idea}: {', '.join(back.files)} ({back.lines} lines){instead}{left_out}"


def _told(ended: Iterable[Proposal]) -> Iterator[str]:
    """How proposals ended that came to no edit."""
    return (f"candidate {proposal.number}: {proposal.text}" for proposal in ended)


def _so_far(past: SessionChanges, notes: Path) -> str:
    """The ledger in a line: candidates, what was kept, dollars and tokens of AI."""
    kept = sum(change.outcome == "kept" for change in past.tried)
    used = used_by(notes)
    known = sum(use.usd is not None for use in used)
    usd = f"${dollars(used):.2f} of AI" if known else "AI unknown"
    part = " in part" if 0 < known < len(used) else ""
    tokens = sum(model.tokens.total for use in used for model in use.models)
    read = f"{tokens:,} tokens" if tokens else "tokens unknown"
    return f"so far {len(candidates.kept_in(notes))} proposed, {kept} kept, {usd}{part}, {read}"
