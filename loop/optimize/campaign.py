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
from loop.optimize.guard import Guard
from loop.optimize.paired import best_first
from loop.optimize.session_changes import SessionChanges, workshop
from loop.optimize.stopping import STOP, Spent, why_ended
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Result, Working


def why_over(context: Context) -> str | None:
    """Why the campaign asks for no further candidate; None while it does, or while one waits to be judged."""
    spent = spent_by(context)
    if waiting(SessionChanges(context.finished), workshop(context).notes) and not spent.stopped:
        return None
    return why_ended(context.task.campaign, spent)


def spent_by(context: Context) -> Spent:
    """What the campaign has come to."""
    past, notes = SessionChanges(context.finished), workshop(context).notes
    unattended, used = context.task.campaign.unattended, used_by(notes)
    seconds = sum(record.seconds for record in context.finished)
    judging_s = sum(one.seconds for one in context.finished if one.action != "change.brief")
    return Spent(
        candidates=len(past.proposals) if unattended else len(past.tried),
        without_gain=past.without_gain if unattended else 0,
        seconds=seconds,
        gpu_s=judging_s if context.bench.device == "cuda" else 0.0,
        usd=dollars(used) + seconds / 3600 * context.task.usd_per_hour + usd_of(jobs_of(context.finished)),
        tokens=sum(model.tokens.total for one in used for model in one.models),
        ratio=past.gained,
        done=any(one.ended == "done" for one in past.proposals),
        stopped=(notes.parent / STOP).exists(),
    )


def used_by(notes: Path) -> list[AiUse]:
    """What the proposers of a session used, as far as they told."""
    return [one.use for one in candidates.kept_in(notes).values() if one.use]


def dollars(used: list[AiUse]) -> float:
    """What of it is known in dollars."""
    return sum(one.usd or 0.0 for one in used)


def waiting(past: SessionChanges, notes: Path) -> list[Proposal]:
    """Edits that were proposed and are not judged yet."""
    taken = {record.output.get("candidate") for record in past.finished}
    settled = {one.number for one in past.proposals if one.ended != "edited"}
    found = candidates.kept_in(notes).values()
    return [one for one in found if one.ended == "edited" and one.number not in taken | settled]


def next_candidate(context: Context, asked: Brief, tree: Worktree) -> Working[BriefOutput]:
    """One that waits, or one that its proposer makes now."""
    past, shop, terms = SessionChanges(context.finished), workshop(context), context.task.campaign
    tree.revert()
    first = max(candidates.kept_in(shop.notes), default=0) + 1
    if not waiting(past, shop.notes):
        spent = spent_by(context)
        left_s = terms.minutes * 60 - spent.seconds if terms.minutes else math.inf
        left_usd = max(0.01, terms.usd - spent.usd) if terms.usd else None
        limit_s = min(terms.proposer_minutes * 60, left_s)
        page = page_of(shop.notes, asked)
        guard = Guard.of(context, tree)
        round_ = candidates.Round(context, shop, asked, page, tree, terms, limit_s, left_usd, guard)
        yield from candidates.ask(round_, first)
    known, so_far = {one.number for one in past.proposals}, _so_far(past, shop.notes)
    fresh = {number: one for number, one in candidates.kept_in(shop.notes).items() if number not in known}
    ordered, jobs = yield from best_first(context, tree, waiting(past, shop.notes))
    for one in ordered:
        # Jobs compared all of a round: one that conflicts lost to what was kept.
        start = "" if terms.executor else past.first_base
        fresh[one.number] = handed_over(shop, tree, one, past.judged_edits, start)
        if fresh[one.number].ended == "edited":
            back = handed_back(context, shop, asked, tree.changed(), tree)
            ended = tuple(each for each in fresh.values() if each.ended != "edited")
            said = "; ".join([*_told(ended), _offered(fresh[one.number], back), so_far])
            also = {"candidate": one.number, "proposals": tuple(fresh.values()), "jobs": jobs}
            return Result(back.model_copy(update={**also, "message": said}))
    ended = tuple(fresh.values())
    said = "; ".join([*_told(ended), so_far])
    login = any(one.ended == "login" and one.number >= first for one in ended)
    hint = f"log in to what `{terms.proposer}` runs, then: {asked.resume}" if login else None
    return Result(BriefOutput(ok=True, brief=asked, message=said, hint=hint, proposals=ended), paused=login)


def _offered(one: Proposal, back: BriefOutput) -> str:
    """What is judged next, in words."""
    left_out = f", not taken: {', '.join(one.left_out)}" if one.left_out else ""
    idea = f" ({one.idea})" if one.idea else ""
    instead = f", {one.said}" if one.said else ""
    return f"candidate {one.number}{idea}: {', '.join(back.files)} ({back.lines} lines){instead}{left_out}"


def _told(ended: Iterable[Proposal]) -> Iterator[str]:
    """How proposals ended that came to no edit."""
    return (f"candidate {one.number}: {one.text}" for one in ended)


def _so_far(past: SessionChanges, notes: Path) -> str:
    """The ledger in a line: candidates, what was kept, dollars and tokens of AI."""
    kept = sum(one.outcome == "kept" for one in past.tried)
    used = used_by(notes)
    known = sum(one.usd is not None for one in used)
    usd = f"${dollars(used):.2f} of AI" if known else "AI unknown"
    part = " in part" if 0 < known < len(used) else ""
    tokens = sum(model.tokens.total for one in used for model in one.models)
    read = f"{tokens:,} tokens" if tokens else "tokens unknown"
    return f"so far {len(candidates.kept_in(notes))} proposed, {kept} kept, {usd}{part}, {read}"
