"""A session folder to its row in the index."""

import datetime
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from loop.base.errors import LoopError
from loop.base.stats import geometric_mean
from loop.model.bisect import BisectOutput
from loop.model.change import DecisionOutput, hosts_of, kept
from loop.model.gain import GainOutcome, Promise, Promised
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.model.money import Bill
from loop.model.output import Output, outputs_of
from loop.model.plan import PlannedPattern
from loop.model.record import Finished, Line, SessionHead, SessionRecord, Started, Status, latest_attempts
from loop.model.verdict import Verdict
from loop.store import journal, recorded
from loop.store.fingerprints import failures_of
from loop.store.judgements import judgements
from loop.store.sessions import HEAD, RECORD, SessionFolder, cut, other_format

BUILDS, PROFILES, DECIDES = "kernel.build", "kernel.profile", "change.decide"
"""Actions that say it."""


def _advice(steps: Sequence[Finished]) -> dict[str, Any]:
    """Builds, promises and gains, by the names of their fields in a row."""
    builds = {one["variant"]: one["build_id"] for one in _parts(steps, BUILDS, "builds")}
    promises = {one["variant"]: _promised(one, builds) for one in _parts(steps, PROFILES, "profiles")}
    return {
        "builds": builds,
        "promises": tuple(one for one in promises.values() if one),
        "gains": tuple(_gains(steps)),
    }


def speeds(verdicts: Sequence[Verdict]) -> dict[str, dict[str, float]]:
    """Ratios against the baseline, by variant and workload, of what could be judged."""
    found: dict[str, dict[str, float]] = {}
    for one in verdicts:
        if one.ratio is not None and one.against == "baseline" and one.verdict != "inconclusive":
            found.setdefault(one.variant, {})[one.workload] = one.ratio
    return found


def _parts(steps: Sequence[Finished], action: str, field: str) -> list[dict[str, Any]]:
    return [one for step in steps if step.action == action for one in step.output.get(field, ())]


def _promised(profile: dict[str, Any], builds: dict[str, str]) -> Promised | None:
    """The promise of a profile; None where it made none, or of a variant that `loop` does not build."""
    promise, build = profile.get("promise"), builds.get(profile["variant"])
    if promise is None or build is None:
        return None
    return Promised(
        promise=Promise.model_validate(promise),
        variant=profile["variant"],
        workload=profile["workload"],
        build=build,
        ratio=profile["facts"]["ratio"],
    )


def _gains(steps: Sequence[Finished]) -> Iterator[GainOutcome]:
    tried = (step.output.get("tried") for step in steps if step.action == DECIDES)
    for one in tried:
        if one and one.get("promised"):
            yield GainOutcome.model_validate(one["promised"])


WORST_FIRST: tuple[Status, ...] = ("failed", "aborted", "paused", "passed")
TORCH = "environment.torch"

CHECKS = ("kernel.verify", "kernel.emulate")
"""Actions that hold the target's own variants against the reference."""
RESOURCES = "kernel.resources"
ASKS = ("kernel.measure", "kernel.compare", "bisect.search", "change.decide")
"""Actions whose answer is a verdict on speed, a commit or a decision, and that may end without one."""


def row_of(path: Path) -> tuple[SessionRow | None, str]:
    """What the session in a folder says, and what is wrong with its files; None where they say nothing.

    Of a journal that is damaged further on, the lines before the damage count.
    """
    folder = SessionFolder(path)
    try:
        if (path / recorded.NAME).is_file():
            return recorded.row_of(recorded.read(path)), ""
        head, record = folder.head(), folder.record()
        lines, problem = journal.whole_lines(path / journal.NAME)
        problem = problem or cut(path, record, lines)
    except LoopError as error:
        return None, other_format(path / HEAD) or other_format(path / RECORD) or error.message
    return row(head, record, lines), problem


def row(head: SessionHead, record: SessionRecord | None, lines: Sequence[Line]) -> SessionRow:
    """What a session says; without a record, one that has not ended."""
    steps = latest_attempts(journal.finished(lines))
    runs = _runs(head, steps, lines)
    ended = _ended(record) if record else {}
    return SessionRow(
        id=head.id,
        started=head.started,
        target=head.target,
        plan=head.plan.plan.name,
        device=head.device,
        variants=head.variants,
        emulated=head.emulated,
        workloads=(*head.plan.plan.workloads, *head.plan.plan.checks),
        threads=head.threads,
        load=head.machine.load,
        ground=head.ground,
        harness=head.harness,
        attended=head.attended,
        kept=kept(steps),
        left=next((one.ground for one in reversed(outputs_of(steps, DecisionOutput)) if one.kept), ""),
        commit=None if head.revision.dirty else head.revision.commit,
        base=head.revision.commit,
        loop_version=head.loop_version,
        predicted=head.predicted,
        environment=_environment(head, steps),
        runs=runs,
        right=_right(steps),
        judged=judgements(head, steps),
        blamed=dict(blamed(steps)),
        otherwise=head.plan.plan.otherwise or "",
        resources=_resources(steps),
        lasting=_lasting(steps),
        complete=set(head.plan.plan.patterns) <= {run.pattern for run in runs if run.whole},
        steps=tuple(StepRun(pattern=s.pattern, step=s.step, status=s.status, seconds=s.seconds) for s in steps),
        hosts=hosts_of(steps),
        failures=failures_of(head.id, [line.event for line in lines if isinstance(line.event, Finished)]),
        **_advice(steps),
        **{"status": None, **ended},
    )


def _lasting(steps: Sequence[Finished]) -> dict[str, bool]:
    """What its own results rest on, and whether all that rest on the same were good."""
    found: dict[str, bool] = {}
    for one in outputs_of(steps, Output):
        if one.rests_on and not one.taken_from:
            found[one.rests_on] = one.ok and found.get(one.rests_on, True)
    return found


def _right(steps: Sequence[Finished]) -> tuple[str, ...]:
    """Variants that the last checks of them found right."""
    found: dict[str, bool] = {}
    for output in (step.output for step in steps if step.action in CHECKS):
        found |= {**dict.fromkeys(output.get("right", ()), True), **dict.fromkeys(output.get("wrong", ()), False)}
    return tuple(name for name, right in found.items() if right)


def blamed(steps: Sequence[Finished]) -> Iterator[tuple[str, str]]:
    """Variants of which a search named one commit, with that commit."""
    for one in outputs_of(steps, BisectOutput):
        if one.answer is not None and len(one.answer.culprits) == 1 and one.metric != "resources":
            culprit = one.answer.culprits[0]
            yield one.variant, f"{culprit.commit[:12]} ({culprit.subject})"


def _resources(steps: Sequence[Finished]) -> tuple[tuple[str, str], ...]:
    """Variants and kinds of GPU whose resources were recorded without a rise."""
    found: dict[tuple[str, str], bool] = {}
    for output in (step.output for step in steps if step.action == RESOURCES):
        risen = {one["variant"] for one in output.get("risen", ())}
        found |= {(one["variant"], one["device"]): one["variant"] in risen for one in output.get("taken", ())}
    return tuple(key for key, rose in found.items() if not rose)


def _ended(record: SessionRecord) -> dict[str, object]:
    """What only a session that has ended says."""
    bill: Bill = record.bill
    return {
        "status": record.status,
        "reason": record.reason,
        "grade": record.grade,
        "seconds": record.seconds,
        "own_seconds": record.own_seconds,
        "charges": bill.charges,
        "savings": bill.savings,
        "usd": bill.usd,
        "unmeasured": bill.unmeasured,
        "notes": bill.notes,
        "missed": "; ".join(one.words for one in record.objective.missed) if record.objective else "",
        "speeds": speeds(record.verdicts),
        **judged(record.verdicts),
    }


class Judged(TypedDict):
    """What verdicts say of variants."""

    ratios: dict[str, float]
    unsure: tuple[str, ...]
    regressed: tuple[str, ...]
    incorrect: tuple[str, ...]


def judged(verdicts: Sequence[Verdict]) -> Judged:
    """The fields of a row that rest on its verdicts."""
    ratios: dict[str, list[float]] = {}
    for one in verdicts:
        if one.ratio is not None and one.against == "baseline":
            ratios.setdefault(one.variant, []).append(one.ratio)
    return {
        "ratios": {variant: geometric_mean(values) for variant, values in ratios.items()},
        "unsure": _variants(one for one in verdicts if one.verdict == "inconclusive"),
        "regressed": _variants(v for v in verdicts if v.against == "known_good" and v.verdict == "slower"),
        "incorrect": _variants(one for one in verdicts if one.verdict == "incorrect"),
    }


def _variants(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.variant for one in verdicts))


def _environment(head: SessionHead, steps: Sequence[Finished]) -> Environment:
    found = (step.output.get("version") for step in reversed(steps) if step.action == TORCH)
    return Environment.of(head.machine, head.device, next(found, None) or head.machine.torch)


def _runs(head: SessionHead, steps: Sequence[Finished], lines: Sequence[Line]) -> tuple[PatternRun, ...]:
    began: dict[tuple[int, str], datetime.datetime] = {}
    for line in lines:
        if isinstance(line.event, Started):
            began.setdefault((line.event.run, line.event.pattern), line.at)
    by_run: dict[tuple[int, str], list[Finished]] = {}
    for step in steps:
        by_run.setdefault((step.run, step.pattern), []).append(step)
    sizes = {planned.pattern.name: len(planned.pattern.steps) for planned in head.plan.patterns}
    predicted = {planned.pattern.name: _predicted(planned) for planned in head.plan.patterns}
    return tuple(
        PatternRun(
            pattern=name,
            status=_status(mine),
            seconds=sum(step.seconds for step in mine),
            started=began.get((run, name), head.started),
            whole=len(mine) == sizes.get(name) and not any(step.status in ("aborted", "paused") for step in mine),
            identity=_identity(mine),
            built=any(_compiled(step) for step in mine),
            predicted_s=predicted.get(name),
            found=_found(mine),
            answered=_answered(mine),
        )
        for (run, name), mine in by_run.items()
    )


def _predicted(planned: PlannedPattern) -> tuple[float, float, float] | None:
    """Least, expected and most seconds."""
    low, high = planned.low_s, planned.high_s
    return None if low is None or high is None else (low, planned.seconds, high)


def _status(steps: Iterable[Finished]) -> Status:
    statuses = {step.status for step in steps}
    return next((status for status in WORST_FIRST if status in statuses), "skipped")


def _identity(steps: Iterable[Finished]) -> str:
    """One hash of what the passed steps stand on; a session's environment is the same in every order."""
    passed = (step.output.get("identity") for step in steps if step.status == "passed")
    found = sorted({str(identity) for identity in passed if identity})
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16] if found else ""


def _compiled(step: Finished) -> bool:
    """Whether a build step found its cache cold."""
    builds = step.output.get("builds")
    return isinstance(builds, list) and any(isinstance(one, dict) and not one.get("cached") for one in builds)


def _answered(steps: Sequence[Finished]) -> bool:
    """Whether a run that asks for a speed has a verdict on one, and one that searches or decides an end of it."""
    asked = [step for step in steps if step.action in ASKS]
    return not asked or any(_tells(step.output) for step in asked)


def _tells(output: dict[str, Any]) -> bool:
    """Whether a step came to a verdict on another build, a culprit or a decision."""
    words = {one["verdict"] for one in output.get("verdicts", ()) if one["against"] != "self"}
    return bool(words - {"inconclusive"} or output.get("answer") or output.get("tried"))


def _found(steps: Sequence[Finished]) -> bool:
    """Whether every failed step has an output of its own: an error leaves none, a bug only its traceback."""
    failed = [step for step in steps if step.status == "failed"]
    return bool(failed) and all(step.output and "traceback" not in step.output for step in failed)
