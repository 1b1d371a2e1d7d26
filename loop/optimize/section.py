"""The report's section on changes: each proposed or edited change, and its outcome."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

from loop.agents.proposing import sum_ai_use
from loop.model.base import Model
from loop.model.change import ON_CHANGE, ConfirmOutput, DecisionOutput, JudgedOutput, as_target_step
from loop.model.measurement import SpeedVerdict
from loop.model.money import AiUse
from loop.model.output import MeasureOutput, outputs_by_run, outputs_of, read_output
from loop.model.record import Finished, latest_attempts
from loop.model.target import literal_text
from loop.optimize.model import BriefOutput, confirmed_text
from loop.optimize.session_changes import SessionChanges
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.sections import Section

MOST_TRIALS = 12  # Points of a tuning search in the report; the journal has all.
SPEED_HEADS = (">Against the incumbent", ">Against the baseline")
HEADS = (">Change", "Variant", "Files", "Outcome", *SPEED_HEADS, "Why")
JUDGED_NOTE = (
    "Each was made in a worktree of loop's own and was judged by the gate; one that failed a step "
    "went no further. A speed is the mean ratio over the workloads, above 1 it is faster."
)
SEARCH_NOTE = "compiled, verified, then timed beside the incumbent; one that failed went no further"
SEARCH_HEADS = ("Values", "Outcome", ">Against the incumbent", ">Lowest", "Why")


def sections(finished: Sequence[Finished]) -> Iterator[Section]:
    """The report's sections on changes and tuning searches, and where kept changes are."""
    records = latest_attempts(finished)
    decisions, rows = outputs_by_run(records, DecisionOutput), []
    change_by_run = {run: decision.tried for run, decision in decisions if decision.tried}
    for run, change in change_by_run.items():
        timings = (step for step in records if (step.run, step.action) == (run, "change.measure"))
        measured = outputs_of(map(as_target_step, timings), MeasureOutput)
        verdicts = measured[0].verdicts if measured else ()
        speeds = [row for row in verdicts if isinstance(row, SpeedVerdict)]
        ratios = [speed.ratio for speed in speeds if speed.variant == change.variant]
        against_incumbent = say.speedup_text(change.gain) if change.gain else "not timed"
        against_baseline = say.speedup_text(geometric_mean(ratios)) if ratios else "not timed"
        cells = (str(change.number), change.variant, ", ".join(change.files), change.outcome)
        rows.append((*cells, against_incumbent, against_baseline, change.reason))
    searches = list[Section]()  # A table for each tuning search, the fastest points first.
    for trials in (output.trials for output in outputs_of(records, BriefOutput) if output.trials):
        points = []
        for trial in sorted(trials, key=lambda trial: -(trial.ratio or 0))[:MOST_TRIALS]:
            speed = say.speedup_text(trial.ratio) if trial.ratio else "not timed"
            lowest = say.speedup_text(trial.worst) if trial.worst else "not timed"
            values = [f"{name} {literal_text(value)}" for name, value in trial.values.items()]
            points.append((", ".join(values), trial.outcome, speed, lowest, trial.reason))
        hidden = len(trials) - len(points)
        note = f"Values of `{trials[0].tuning}`, {SEARCH_NOTE}:"
        table = drop_empty_columns(SEARCH_HEADS, points)
        after = (f"{hidden} more are in the journal.",) if hidden else ()
        searches.append(Section(note=note, table=table, after=after))
    lines = [*_campaign_lines(records)]
    kept = [decision for _, decision in decisions if decision.kept]
    if kept and kept[-1].tried:
        taking, branch = kept[-1].taking, kept[-1].branch  # Of all kept changes.
        patch = Path(kept[-1].tried.patch).parent / "kept.patch"
        lines.append(f"All that was kept: `{taking or f'git apply {patch}'}`")
        if branch:
            lines.append(f"The same as commits: branch `{branch}`; as one patch: `{patch}`")
    for change in change_by_run.values():
        name = f"Change {change.number} ({change.outcome})"
        lines.append(f"{name} as a patch: `git apply {change.patch}`")
    is_paused = bool(records) and records[-1].status == "paused"
    pause = read_output(records[-1], BriefOutput) if is_paused else None
    if pause and (brief := pause.brief):
        lines.append(f"Waiting for change {brief.number}, to {brief.variant}, in `{brief.folder}`")
    if rows or searches or lines:
        yield Section("Changes", note="What became of each change of the target:")
    if rows:
        yield Section(note=JUDGED_NOTE, table=drop_empty_columns(HEADS, rows))
    yield from searches
    yield Section(lines=tuple(lines))


def has_change(finished: Sequence[Finished], progress: Literal["verified", "timed"]) -> bool:
    """Whether any change, or any point of a tuning search, was verified or timed."""
    actions, outcomes = {"change.measure", "change.compare"}, {"timed", "best"}
    if progress == "verified":
        actions, outcomes = {"change.verify"}, {"wrong", "timed", "best"}
    steps = [record for record in finished if record.action in actions]
    judgements = outputs_of(steps, JudgedOutput)
    if any(judgement.found for judgement in judgements):
        return True
    searches = outputs_of(finished, BriefOutput)
    return any(trial.outcome in outcomes for search in searches for trial in search.trials)


def skips_judging(record: Finished, finished: Sequence[Finished]) -> bool:
    """Whether a skipped step judges a change, and nothing of its run was left to judge: no edit, or
    one that had failed or was reverted. The report names no gap for such a step."""
    if not record.action.startswith(ON_CHANGE):
        return False
    of_run = (step for step in latest_attempts(finished) if step.run == record.run)
    steps = [step for step in of_run if step.action.startswith(ON_CHANGE)]
    is_edited = any(output.edited for output in outputs_of(steps, BriefOutput))
    is_refused = any(not output.good for output in outputs_of(steps, JudgedOutput))
    is_reverted = any(not output.kept for output in outputs_of(steps, DecisionOutput))
    has_failed = any(step.status == "failed" for step in steps)
    return not is_edited or is_refused or is_reverted or has_failed


def changes_json(finished: Sequence[Finished]) -> dict[str, Sequence[Model]]:
    """The section as data: judged changes, proposals, speedups of the final measurement."""
    changes = SessionChanges(latest_attempts(finished))
    outputs = outputs_of(finished, ConfirmOutput)
    confirmed = [figure for output in outputs for figure in output.confirmed]
    judged, proposals = changes.judged_changes, changes.proposals
    return {"judged": judged, "proposals": proposals, "confirmed": confirmed}


def _campaign_lines(records: Sequence[Finished]) -> Iterator[str]:
    """Lines on a campaign: its final measurement, its cost, and how each proposal ended."""
    for output in outputs_of(records, ConfirmOutput):
        for figure in output.confirmed:
            yield f"{confirmed_text(figure)}, measured when all was over, on fresh values"
    changes = SessionChanges(records)
    proposals = changes.proposals
    if not proposals:
        return
    kept = sum(decision.kept for _, decision in changes.decisions)
    use, per_change = sum_ai_use(proposals), ""
    if kept and use.usd is not None:
        per_change = f", ${use.usd / kept:.2f} for each that was kept"
    yield f"{say.count(len(proposals), 'candidate')}, {kept} kept; {ai_use_text(use)}{per_change}"
    if not all(proposal.isolated for proposal in proposals):
        reason = "`bwrap` does not work here, or a command of your own proposed"
        yield f"The proposers were not isolated: {reason}"
    briefs = outputs_by_run(records, BriefOutput)
    run_by_candidate = {brief.candidate: run for run, brief in briefs}
    tried_by_run = {run: decision.tried for run, decision in changes.decisions}
    for proposal in proposals:
        tried = tried_by_run.get(run_by_candidate.get(proposal.number, -1))
        idea = f" ({proposal.idea})" if proposal.idea else ""
        details = [f"change {tried.number}" if tried else proposal.text]
        details.append(f"{proposal.seconds:.0f} s")
        if use.usd is not None or use.models:
            details.append(ai_use_text(proposal.use))
        if proposal.left_out and proposal.ended != "unedited":
            details.append(f"not taken: {', '.join(proposal.left_out)}")
        yield f"Candidate {proposal.number}{idea}: {'; '.join(details)}"
    endings = [brief.message for _, brief in briefs if brief.declined]
    if endings:
        yield f"The campaign ended: {endings[-1]}"


def ai_use_text(use: AiUse | None) -> str:
    """What an AI cost: `$0.12 (estimate), 900 tokens`; an unknown number is never shown as zero."""
    if use is None or (use.usd is None and not use.models):
        return "no AI cost stated"
    accuracy = "partial" if use.unpriced else "exact" if use.source == "stated" else "estimate"
    usd = f"${use.usd:.2f} ({accuracy})" if use.usd is not None else "dollars unknown"
    return f"{usd}, {f'{use.total_tokens:,} tokens' if use.total_tokens else 'tokens unknown'}"
