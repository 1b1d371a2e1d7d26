"""The rounds of a campaign: whether there is another one, and which candidate is judged next."""

import math
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.agents import proposing
from loop.agents.proposing import PROPOSALS, Errand, Errands, children, preset_of, run_errand, sweep_orphans
from loop.agents.proposing import together as all_of
from loop.base.documents import sums, write_atomic
from loop.base.processes import Tick, together
from loop.builds import build
from loop.builds.build import BuildFailed
from loop.model.campaign import Campaign, Ended, Proposal
from loop.model.change import Brief, BriefOutput, jobs_of
from loop.model.jobs import usd_of
from loop.model.money import AiUse
from loop.optimize.checking import NOTE, CheckNote
from loop.optimize.edits import Taken, handed_back, handed_over, page_of
from loop.optimize.keeping import CampaignSpent, why_ended
from loop.optimize.paired import best_first
from loop.optimize.session_changes import SessionChanges, workshop
from loop.repository import worktree
from loop.repository.worktree import Worktree, note_owner
from loop.steps.context import Context, Result, Working, Workshop

ANSWER = "loop-answer.json"
"""What a proposer may write at the top of its folder."""
CACHE = "loop-cache"
"""Where the checks of a candidate keep their builds, in `.git` of its folder: it goes with the folder."""
REPAIRS = 2
"""How often an edit that does not compile goes back to its proposer."""


@dataclass(frozen=True)
class ProposalRound:
    """What a round of proposals stands on."""

    context: Context
    shop: Workshop
    brief: Brief
    page: Path
    """The brief, as Markdown."""
    tree: Worktree
    """The incumbent."""
    campaign: Campaign
    limit_s: float
    """What each proposer may take."""
    usd: float | None
    """Dollars that are left for all of them."""
    head: str
    """The worktree's commit when they began."""


def kept_in(notes: Path) -> dict[int, Proposal]:
    """The proposals of a session that were noted, by number."""
    proposals = (sums.read_sealed(Proposal, path) for path in sorted(notes.parent.glob(PROPOSALS)))
    return {proposal.number: proposal for proposal in proposals}


def ask(round_: ProposalRound, first: int) -> Generator[Tick, None, None]:
    """Have `width` candidates proposed at the same time, numbered from `first`; each is noted when it ends."""
    for killed in round_.shop.tree.parent.glob(f"{round_.shop.tree.name}.*"):
        shutil.rmtree(killed, ignore_errors=True)
    before, numbers = children(), range(first, first + round_.campaign.width)
    try:
        yield from together((_candidate(round_, number) for number in numbers), len(numbers))
    finally:
        sweep_orphans(before)
        _put_back(round_)


def _put_back(round_: ProposalRound) -> None:
    """Have the incumbent be what it was, whatever a proposer wrote there: edits are compared with it."""
    if round_.tree.head != round_.head or round_.tree.changed():
        round_.tree.revert(round_.head)


def _candidate(round_: ProposalRound, number: int) -> Generator[Tick, None, None]:
    """One candidate, from an empty folder to its note."""
    context, folder = round_.context, round_.shop.notes / "candidates"
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{number:04}.json"
    sums.write_sealed(note, Proposal(number=number, ended="interrupted"))
    place = round_.shop.tree.with_name(f"{round_.shop.tree.name}.{number}")
    try:
        copy = worktree.copy_of(round_.tree, place)
        note_owner(copy, round_.shop.notes.parent)
        # A cache of its own, with the session's locks: no build that a proposer could edit is judged.
        locks, own = context.bench.cache / "locks", copy.root / ".git" / CACHE / "builds"
        for each in (locks, own):
            each.mkdir(parents=True, exist_ok=True)
        (own / "locks").symlink_to(locks)
        check = CheckNote(
            incumbents=SessionChanges(context.finished).incumbents,
            builds=str(context.bench.cache),
            workload=round_.brief.workload,
            sets=(*context.task.plan.workloads, *round_.brief.checks),
        )
        sums.write_sealed(copy.root / ".git" / NOTE, check)
        proposal = yield from _proposed(round_, number, copy)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sums.write_sealed(note, proposal)


def _proposed(round_: ProposalRound, number: int, copy: Worktree) -> Generator[Tick, None, Proposal]:
    """Run the proposer; again with the compiler's words where its edit does not compile."""
    campaign, context = round_.campaign, round_.context
    page = round_.shop.notes / "candidates" / f"{number:04}-brief.md"
    for suffix in (".md", ".json"):  # The brief with this candidate's folder in the place of the session's.
        text = round_.page.with_suffix(suffix).read_text()
        write_atomic(page.with_suffix(suffix), text.replace(str(round_.tree.root), str(copy.root)))
    preset, locks = preset_of(campaign.proposer), context.bench.cache / "locks"
    isolated = proposing.under(copy.root, locks, page.parent, preset)
    results: list[Errands] = []
    while True:
        errand = Errand(
            preset=preset,
            page=page,
            folder=copy.target,
            answer=copy.root / ANSWER,
            limit_s=round_.limit_s - sum(result.seconds for result in results),
            quiet_s=campaign.quiet_minutes * 60,
            usd=round_.usd / campaign.width if round_.usd is not None else None,
            env=campaign.env,
            under=isolated,
            cache=copy.root / ".git" / CACHE,
        )
        result = yield from run_errand(errand)
        results.append(result)
        write_atomic(page.with_name(f"{number:04}-{len(results)}.txt"), result.output)
        _put_back(round_)
        edit = Taken.of(round_.brief, round_.tree, copy)
        fields = {
            "number": number,
            "seconds": sum(result.seconds for result in results),
            "use": all_of([result.use for result in results]),
            "idea": result.idea,
            "isolated": bool(isolated),
            "left_out": edit.left_out,
        }
        if not edit.files:
            ended: Ended = "unedited" if result.ended == "edited" else result.ended
            return Proposal(ended=ended, said=result.said, **fields)
        refused_by = yield from refused(context, round_.brief.variant, copy)
        if not refused_by:
            _put_back(round_)
            patch = edit.as_patch(round_.tree, page.with_name(f"{number:04}.patch"))
            files = {"files": tuple(edit.files), "patch": str(patch)}
            return Proposal(ended="edited", said=result.said, **fields, **files)
        if len(results) > REPAIRS or result.ended != "edited":
            return Proposal(ended="uncompiled", said=refused_by.splitlines()[0], **fields)
        write_atomic(page, f"{page.read_text()}\n## Your edit does not compile\n\n```\n{refused_by}\n```\n")


def refused(context: Context, name: str, copy: Worktree) -> Generator[Tick, None, str]:
    """The compiler's words where an edited variant does not compile; empty where it does."""
    bench = context.bench
    variant = build.buildable(bench, [name])[name]
    try:
        yield from build.build(
            name, variant, copy.target, cache=bench.cache, include=bench.include, limit_s=context.kill_after_s
        )
    except BuildFailed as failed:
        return f"{failed.message}\n{failed.log}"[:4000]
    return ""


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
    usd = sum(use.usd or 0.0 for use in used) + usd_of(jobs_of(context.finished))
    usd += seconds / 3600 * context.task.usd_per_hour
    return CampaignSpent(
        candidates=len(past.proposals) if unattended else len(past.tried),
        without_gain=past.without_gain if unattended else 0,
        seconds=seconds,
        gpu_s=judging_s if context.bench.device == "cuda" else 0.0,
        usd=sum(use.usd or 0.0 for use in used)
        + seconds / 3600 * context.task.usd_per_hour
        + usd_of(jobs_of(context.finished)),
        tokens=tokens_of(used),
        ratio=past.gained,
        done=any(proposal.ended == "done" for proposal in past.proposals),
    )


def used_by(notes: Path) -> list[AiUse]:
    """What the proposers of a session used, as far as they told."""
    return [proposal.use for proposal in kept_in(notes).values() if proposal.use]


def tokens_of(used: Sequence[AiUse]) -> int:
    """Tokens that are known of."""
    return sum(model.tokens.total for use in used for model in use.models)


def waiting(past: SessionChanges, notes: Path) -> list[Proposal]:
    """Edits that were proposed and are not judged yet."""
    judged = {record.output.get("candidate") for record in past.finished}
    judged |= {proposal.number for proposal in past.proposals if proposal.ended != "edited"}
    proposals = kept_in(notes).values()
    return [proposal for proposal in proposals if proposal.ended == "edited" and proposal.number not in judged]


def next_candidate(context: Context, brief: Brief, tree: Worktree) -> Working[BriefOutput]:
    """One that waits, or one that its proposer makes now."""
    past, shop, terms = SessionChanges(context.finished), workshop(context), context.task.campaign
    tree.revert()
    first = max(kept_in(shop.notes), default=0) + 1
    if not waiting(past, shop.notes):
        spent = spent_by(context)
        left_s = terms.minutes * 60 - spent.seconds if terms.minutes else math.inf
        left_usd = max(0.01, terms.usd - spent.usd) if terms.usd else None
        limit_s = min(terms.proposer_minutes * 60, left_s)
        page = page_of(shop.notes, brief)
        round_ = ProposalRound(context, shop, brief, page, tree, terms, limit_s, left_usd, tree.head)
        yield from ask(round_, first)
    known, used = {proposal.number for proposal in past.proposals}, used_by(shop.notes)
    fresh = {number: proposal for number, proposal in kept_in(shop.notes).items() if number not in known}
    kept, tokens = sum(change.outcome == "kept" for change in past.tried), tokens_of(used)
    stated = [use.usd for use in used if use.usd is not None]
    part = " in part" if 0 < len(stated) < len(used) else ""
    so_far = f"so far {len(kept_in(shop.notes))} proposed, {kept} kept"
    so_far += f", ${sum(stated):.2f} of AI{part}" if stated else ", AI unknown"
    so_far += f", {tokens:,} tokens" if tokens else ", tokens unknown"
    ordered, jobs = yield from best_first(context, tree, waiting(past, shop.notes))
    for proposal in ordered:
        # Jobs compared all of a round: one that conflicts lost to what was kept.
        start = "" if terms.executor else past.first_base
        proposal = fresh[proposal.number] = handed_over(shop, tree, proposal, past.judged_edits, start)
        if proposal.ended == "edited":
            back = handed_back(shop, brief, tree.changed(), tree)
            idea = f" ({proposal.idea})" if proposal.idea else ""
            offered = f"candidate {proposal.number}{idea}: {', '.join(back.files)} ({back.lines} lines)"
            offered += f", {proposal.said}" if proposal.said else ""
            offered += f", not taken: {', '.join(proposal.left_out)}" if proposal.left_out else ""
            others = [other for other in fresh.values() if other.ended != "edited"]
            message = "; ".join(
                [*(f"candidate {other.number}: {other.text}" for other in others), offered, so_far]
            )
            also = {"candidate": proposal.number, "proposals": tuple(fresh.values()), "jobs": jobs}
            return Result(back.model_copy(update={**also, "message": message}))
    ended = tuple(fresh.values())
    message = "; ".join([*(f"candidate {other.number}: {other.text}" for other in ended), so_far])
    login = any(proposal.ended == "login" and proposal.number >= first for proposal in ended)
    hint = f"log in to what `{terms.proposer}` runs, then: {brief.resume}" if login else None
    return Result(BriefOutput(ok=True, brief=brief, message=message, hint=hint, proposals=ended), paused=login)
