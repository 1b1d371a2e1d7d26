"""Computes the index row of a session folder."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.errors import LoopError
from loop.base.stats import geometric_mean
from loop.model.bisect import BisectOutput
from loop.model.change import DecisionOutput, hosts_of, kept_gains
from loop.model.history import RESOURCES, RecordedSession
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.model.money import Charge, Unmeasured
from loop.model.output import Output, outputs_of
from loop.model.profile import Promise, Promised
from loop.model.record import Finished, Line, SessionHead, SessionRecord, Started, Status, latest_attempts
from loop.model.verdict import Verdict
from loop.store import journal
from loop.store.fingerprints import failures_of
from loop.store.judgements import judgements
from loop.store.sessions import RECORDED, SessionFolder, lines_lost, read_recorded

WORST_FIRST: tuple[Status, ...] = ("failed", "aborted", "paused", "passed")
OF_HEAD = (
    "id", "started", "target", "device", "variants", "emulated", "threads", "ground", "harness", "attended",
    "loop_version", "predicted",
)  # fmt: skip
"""Fields that a row copies from the session's head."""
CHECKS = ("kernel.verify", "kernel.emulate")
"""Actions that compare the target's variants with the reference."""
ASKS = ("kernel.measure", "kernel.compare", "bisect.search", "change.decide")
"""Actions that answer with a speed verdict, a commit or a decision. They may pass without an answer."""


def row_of(path: Path) -> tuple[SessionRow | None, str]:
    """The index row of a session folder, and what is wrong with its files (empty if nothing).

    The row is None for copies and unreadable folders. Of a damaged journal the intact start counts.
    """
    folder = SessionFolder(path)
    try:
        if (path / RECORDED).is_file():
            return _recorded_row(read_recorded(path)), ""
        head, record = folder.head(), folder.record()
        if head.id != path.name:  # A copied folder must not count twice.
            return None, f"{path}: a copy of session {head.id}"
        lines, problem = journal.whole_lines(path / journal.NAME)
        return session_row(head, record, lines), problem or lines_lost(path, record, lines)
    except LoopError as error:
        return None, error.message


def session_row(head: SessionHead, record: SessionRecord | None, lines: Sequence[Line]) -> SessionRow:
    """The index row of a session. `record` is None when the session has not ended."""
    steps = latest_attempts(journal.finished_steps(lines))
    plan, runs = head.plan.plan, _runs(head, steps, lines)
    builds = {
        build["variant"]: build["build_id"]
        for step in steps
        if step.action == "kernel.build"
        for build in step.output.get("builds", ())
    }
    decisions = outputs_of(steps, DecisionOutput)
    right, lasting, torch = dict[str, bool](), dict[str, bool](), head.machine.torch
    for step in steps:
        if step.action == "environment.torch":
            torch = step.output.get("version") or torch
        for word in ("right", "wrong") if step.action in CHECKS else ():
            right |= dict.fromkeys(step.output.get(word, ()), word == "right")
    for output in outputs_of(steps, Output):
        if output.rests_on and not output.taken_from:
            lasting[output.rests_on] = output.ok and lasting.get(output.rests_on, True)
    return SessionRow(
        **{name: getattr(head, name) for name in OF_HEAD},
        plan=plan.name,
        workloads=(*plan.workloads, *plan.checks),
        kept=kept_gains(steps),
        left=next((decision.ground for decision in reversed(decisions) if decision.kept), ""),
        commit=head.revision.clean_commit,
        base=head.revision.commit,
        environment=Environment.of(head.machine, head.device, torch),
        runs=runs,
        right=tuple(variant for variant, passed in right.items() if passed),
        judged=tuple(judgements(head, steps)),
        blamed=dict(blamed_commits(steps)),
        otherwise=plan.otherwise or "",
        lasting=lasting,
        complete=set(plan.patterns) <= {run.pattern for run in runs if run.whole},
        steps=tuple(StepRun(pattern=s.pattern, step=s.step, status=s.status, seconds=s.seconds) for s in steps),
        hosts=hosts_of(steps),
        failures=failures_of(head.id, [line.event for line in lines if isinstance(line.event, Finished)]),
        builds=builds,
        promises=_promises(steps, builds),
        gains=tuple(d.tried.promised for d in decisions if d.tried and d.tried.promised),
        **{"status": None, **(_ended(record) if record else {})},
    )


def _recorded_row(session: RecordedSession) -> SessionRow:
    """The index row of a session recorded before `loop`, from the figures of its report."""
    gpu, row, seconds = session.gpu.get("name"), session.row, session.row.minutes * 60
    usd = {resource: row.resource_usd(resource) for resource in RESOURCES}
    stated = {"rate": "history", "seconds": seconds, "basis": "stated"}
    charges = [Charge(resource=name, usd=cost, **stated) for name, cost in usd.items() if cost is not None]
    missing = [name for name, cost in usd.items() if cost is None]
    return SessionRow(
        id=session.id,
        started=None,
        target="recorded elsewhere",
        plan="recorded",
        device="cuda",
        status=None,
        reason=row.outcome,
        grade=row.grade or "",
        seconds=seconds,
        environment=Environment(processor="", gpu=str(gpu) if gpu else None),
        charges=tuple(charges),
        usd=sum(charge.usd for charge in charges),
        unmeasured=tuple(Unmeasured(resource=name, reason="its report states none") for name in missing),
        incorrect=("the kernel",) if row.correct is False else (),
        recorded=True,
    )


def _promises(steps: Sequence[Finished], builds: Mapping[str, str]) -> tuple[Promised, ...]:
    """The gain that the last profile of each built variant promised. `builds`: variant to build id."""
    outputs = [step.output for step in steps if step.action == "kernel.profile"]
    last = {p["variant"]: p for output in outputs for p in output.get("profiles", ())}
    promises = []
    for variant, profile in last.items():
        if profile.get("promise") is not None and variant in builds:
            fields = {"variant": variant, "workload": profile["workload"], "build": builds[variant]}
            promise = Promise.model_validate(profile["promise"], extra="ignore")
            promises.append(Promised(promise=promise, ratio=profile["facts"]["ratio"], **fields))
    return tuple(promises)


def blamed_commits(steps: Sequence[Finished]) -> Iterator[tuple[str, str]]:
    """Variant and commit (hash and subject) for each bisection that found exactly one culprit."""
    for output in outputs_of(steps, BisectOutput):
        if output.answer is not None and len(output.answer.culprits) == 1:
            culprit = output.answer.culprits[0]
            yield output.variant, f"{culprit.short_commit} ({culprit.subject})"


def _ended(record: SessionRecord) -> dict[str, object]:
    """The row's fields that exist only after the session has ended."""
    speeds: dict[str, dict[str, float]] = {}
    for verdict in record.verdicts:
        if verdict.ratio is not None and verdict.against == "baseline" and verdict.verdict != "inconclusive":
            speeds.setdefault(verdict.variant, {})[verdict.workload] = verdict.ratio
    own = ("status", "reason", "grade", "seconds", "own_seconds")
    billed = ("charges", "savings", "usd", "unmeasured", "notes")
    return {
        **{name: getattr(record, name) for name in own},
        **{name: getattr(record.bill, name) for name in billed},
        "missed": "; ".join(miss.words for miss in record.objective.missed) if record.objective else "",
        "speeds": speeds,
        **fields_of_verdicts(record.verdicts),
    }


def fields_of_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The row's fields from its verdicts: `ratios`, `unsure`, `regressed`, `incorrect`."""
    ratios: dict[str, list[float]] = {}
    for verdict in verdicts:
        if verdict.ratio is not None and verdict.against == "baseline":
            ratios.setdefault(verdict.variant, []).append(verdict.ratio)

    def variants(chosen: Iterable[Verdict]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.variant for verdict in chosen))

    return {
        "ratios": {variant: geometric_mean(values) for variant, values in ratios.items()},
        "unsure": variants(v for v in verdicts if v.verdict == "inconclusive"),
        "regressed": variants(v for v in verdicts if v.against == "known_good" and v.verdict == "slower"),
        "incorrect": variants(v for v in verdicts if v.verdict == "incorrect"),
    }


def _runs(head: SessionHead, steps: Sequence[Finished], lines: Sequence[Line]) -> tuple[PatternRun, ...]:
    """One summary per run of a pattern. `steps`: only the last attempt of each step."""
    began: dict[tuple[int, str], datetime.datetime] = {}
    for line in lines:
        if isinstance(line.event, Started):
            began.setdefault((line.event.run, line.event.pattern), line.at)
    by_run: dict[tuple[int, str], list[Finished]] = {}
    for step in steps:
        by_run.setdefault((step.run, step.pattern), []).append(step)
    planned = {pattern.pattern.name: len(pattern.pattern.steps) for pattern in head.plan.patterns}
    runs = []
    for (run, name), mine in by_run.items():
        statuses = {step.status for step in mine}
        failed = [step.output for step in mine if step.status == "failed"]
        questions = [step.output for step in mine if step.action in ASKS]
        built = [build for step in mine for build in step.output.get("builds") or () if isinstance(build, dict)]
        runs.append(
            PatternRun(
                pattern=name,
                status=next((status for status in WORST_FIRST if status in statuses), "skipped"),
                seconds=sum(step.seconds for step in mine),
                started=began.get((run, name), head.started),
                whole=len(mine) == planned.get(name) and not statuses & {"aborted", "paused"},
                built=any(not build.get("cached") for build in built),
                # An error leaves no output, a bug a traceback. Any other output is a finding.
                found=bool(failed) and all(output and "traceback" not in output for output in failed),
                answered=not questions or any(map(_tells, questions)),
            )
        )
    return tuple(runs)


def _tells(output: dict[str, Any]) -> bool:
    """Whether a step's output has a conclusive verdict, a bisection answer or a decision."""
    words = {verdict["verdict"] for verdict in output.get("verdicts", ()) if verdict["against"] != "self"}
    return bool(words - {"inconclusive"} or output.get("answer") or output.get("tried"))
