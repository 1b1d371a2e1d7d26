"""The end of a session: what its records mean, the report, and what is told."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from loop.commands.drive import Ending
from loop.commands.setting import Setting
from loop.documents import to_json
from loop.errors import ExitCode
from loop.library import figures
from loop.model.plan import ResolvedPlan
from loop.model.record import DeviceName, Finished, SessionHead, SessionRecord, latest_attempts
from loop.model.target import CAbiVariant
from loop.places import shipped
from loop.report import render_report
from loop.report.diagnosis import diagnoses
from loop.rules import costing, grading, learnings, summary
from loop.rules.facts import usd_per_hour
from loop.screen import Screen
from loop.store import sessions
from loop.store.sessions import SessionFolder

TOLD = 2
"""Things not exercised that the last lines name; the report has all."""


def conclude(
    setting: Setting,
    head: SessionHead,
    folder: SessionFolder,
    ending: Ending,
    seconds: float,
    own_seconds: float,
) -> SessionRecord:
    """The final record, from the journal alone."""
    finished = folder.finished()
    findings = summary.collect(finished)
    status, reason = summary.session_status(finished, findings.verdicts)
    if ending.status is not None:
        status, reason = ending.status, ending.reason
    letter, why = grading.grade(status, reason, finished, findings.verdicts)
    card = figures.rates(setting.project)
    used = costing.applied(finished, head.plan)
    before = sessions.concluded(setting.project.sessions, head.target)
    before = {name: steps for name, steps in before.items() if name < head.id}
    same_files = {name for name in before if SessionFolder(folder.path.parent / name).head().ground == head.ground}
    repeated = costing.unchanged(finished, before, same_files)
    return SessionRecord(
        head=head,
        status=status,
        reason=reason,
        seconds=seconds,
        own_seconds=own_seconds,
        verdicts=findings.verdicts,
        bill=costing.bill(seconds, head.device, card, used, figures.histories(), repeated=repeated),
        grade=letter,
        grade_reason=why,
        learnings=learnings.learnings(finished),
        not_exercised=(*findings.not_exercised, *never_reached(head.plan, finished), *left_out(setting, head)),
        proposal=learnings.proposal(head, finished, sources_of(setting)),
    )


def never_reached(plan: ResolvedPlan, finished: tuple[Finished, ...]) -> list[str]:
    """Steps of the planned patterns that have no record."""
    done = {(record.pattern, record.step) for record in finished if record.status != "aborted"}
    planned = [planned.pattern for planned in plan.patterns if planned.planned]
    return [
        f"step {pattern.name}/{step.id}: the session did not get there"
        for pattern in planned
        for step in pattern.steps
        if (pattern.name, step.id) not in done
    ]


def left_out(setting: Setting, head: SessionHead) -> list[str]:
    """Variants and devices that this session did not touch."""
    lines = []
    for name, variant in setting.target.variants.items():
        if name not in (*head.variants, *head.emulated):
            why = "not selected" if variant.device in (head.device, "any") else f"it runs on {variant.device}"
            lines.append(f"variant {name}: {why}")
    lines += [f"speed of {name}: it runs on a GPU, here it was emulated" for name in head.emulated]
    if not head.machine.gpus:
        lines.append("anything on a GPU: this machine has none")
    return lines


def sources_of(setting: Setting) -> dict[str, tuple[str, ...]]:
    """The files of each variant, as a user would open them."""
    compiled = {n: v for n, v in setting.target.variants.items() if isinstance(v, CAbiVariant)}
    return {name: tuple(str(setting.project.target / s) for s in v.sources) for name, v in compiled.items()}


def render(setting: Setting, record: SessionRecord, folder: SessionFolder) -> str:
    """The report of a session, beside its predecessors."""
    earlier = [
        one
        for one in sessions.records(setting.project.sessions)
        if one.head.id < record.head.id and one.head.target == record.head.target
    ]
    templates = setting.project.own("templates") or shipped("templates")
    return render_report(templates, record, folder.finished(), earlier, figures.histories())


def tell(record: SessionRecord, folder: SessionFolder, screen: Screen, *, as_json: bool) -> int:
    """The outcome: a few lines, or one JSON object. Returns what the gates say as an exit code."""
    if as_json:
        screen.data(to_json(outcome(record, folder)))
    screen.say(f"{screen.word(record.status)}: {record.reason}")
    for found in diagnoses(record.head, folder.finished()):
        screen.say(f"what is wrong with {found.variant}:")
        for label, text in found.lines:
            screen.say(f"  {label.lower()}: {text}")
        if found.command:
            screen.say(f"  again: {found.command}")
    missing = record.not_exercised
    for line in missing[:TOLD]:
        screen.say(f"not exercised: {line}")
    if len(missing) > TOLD:
        screen.say(f"not exercised: {len(missing) - TOLD} more things; the report has them")
    hint = waiting_for(folder.finished())
    if hint:
        screen.say(hint)
    screen.say(f"grade {record.grade}; cost ${record.bill.usd:.4f}; report {folder.report}")
    return ExitCode.OK if record.status == "passed" else ExitCode.GATE_FAILED


def waiting_for(finished: Sequence[Finished]) -> str:
    """What a paused session waits for; empty for any other."""
    last = latest_attempts(finished)[-1:]
    return last[0].hint or "" if last and last[0].status == "paused" else ""


def outcome(record: SessionRecord, folder: SessionFolder) -> dict[str, Any]:
    """What `--json` prints of a session."""
    keys = {"variant", "workload", "against", "verdict", "ratio", "interval", "reason"}
    return {
        "schema_version": 1,
        "id": record.head.id,
        "status": record.status,
        "reason": record.reason,
        "report": str(folder.report),
        "waiting_for": waiting_for(folder.finished()),
        "diagnoses": [dataclasses.asdict(found) for found in diagnoses(record.head, folder.finished())],
        "verdicts": [verdict.model_dump(mode="json", include=keys) for verdict in record.verdicts],
        "grade": record.grade,
        "seconds": record.seconds,
        "cost": record.bill.model_dump(mode="json"),
    }


def predicted_usd(setting: Setting, device: DeviceName, seconds: float) -> float:
    """What that many seconds of a session cost."""
    return usd_per_hour(figures.rates(setting.project), device) * seconds / 3600


def plan_json(head: SessionHead, usd: float) -> str:
    """What `--dry-run --json` prints."""
    patterns = [
        {
            "name": planned.pattern.name,
            "planned": planned.planned,
            "predicted_seconds": planned.seconds,
            "evidence": planned.evidence,
            "steps": [step.id for step in planned.pattern.steps],
        }
        for planned in head.plan.patterns
    ]
    fields = {
        "schema_version": 1,
        "plan": head.plan.plan.name,
        "target": head.target,
        "device": head.device,
        "variants": list(head.variants),
        "patterns": patterns,
        "predicted_seconds": head.plan.seconds,
        "predicted_usd": usd,
    }
    return json.dumps(fields, indent=1)
