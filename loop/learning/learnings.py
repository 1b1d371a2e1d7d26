"""Conclusions from a session's records, in sentences of plain text."""

from collections.abc import Iterable, Sequence

from loop.model.change import kept_runs, latest_target_attempts
from loop.model.measurement import Verdict
from loop.model.output import DebugOutput, Output, VerifyOutput, outputs_of, read_output
from loop.model.record import Finished, Status, latest_attempts
from loop.report.markdown import one_line


def session_verdicts(finished: Iterable[Finished]) -> tuple[Verdict, ...]:
    """Verdicts of all steps' last attempts, with kept changes: theirs replace those on older code,
    but not against the known good, another build. An incorrect variant keeps no speed verdict."""
    records = latest_attempts(finished)
    kept_changes = kept_runs(records)
    verdicts: list[Verdict] = []
    for record in latest_target_attempts(records):
        output = read_output(record, Output)
        new_verdicts = output.verdicts if output else ()
        if record.run in kept_changes:
            new_verdicts = tuple(v for v in new_verdicts if v.against != "known_good")
            # These variants are right now: their earlier verdicts without a ratio (`incorrect`) go.
            timed = {v.variant for v in new_verdicts if v.ratio is not None}
            verdicts = [v for v in verdicts if v.ratio is not None or v.variant not in timed]
        verdicts += new_verdicts
    wrong_variants = {v.variant for v in verdicts if v.verdict in ("incorrect", "invalid")}
    last_verdicts = {}
    for verdict in verdicts:
        if verdict.ratio is None or verdict.variant not in wrong_variants:
            last_verdicts[verdict.variant, verdict.workload, verdict.against] = verdict
    return tuple(last_verdicts.values())


def session_status(finished: Iterable[Finished], verdicts: Sequence[Verdict]) -> tuple[Status, str]:
    """Status and reason of a session, by its verdicts, then its steps; failed outranks aborted,
    then paused. It is `skipped` if no step had anything to do, `aborted` if none has ended."""
    for verdict in verdicts:
        name = verdict.variant
        if verdict.verdict in ("incorrect", "invalid"):
            return "failed", f"{name} is {verdict.verdict}: {verdict.reason}"
        if verdict.verdict == "slower" and verdict.against == "known_good":
            judged = [v.verdict for v in verdicts if (v.variant, v.against) == (name, "known_good")]
            workloads = verdict.workload
            if len(judged) > 1:
                workloads = f"{judged.count('slower')} of {len(judged)} workloads"
            return "failed", f"{name} is slower than the known good on {workloads}"
    steps = latest_attempts(finished)
    endings: tuple[Status, ...] = ("failed", "aborted", "paused")
    for status in endings:
        for record in steps:
            if record.status == status:
                return status, f"{record.label}: {record.message}"
    passed = sum(record.status == "passed" for record in steps)
    if passed == 1:
        return "passed", "the one step that ran passed"
    if passed:
        return "passed", f"all {passed} steps that ran passed"
    reasons = "; ".join(dict.fromkeys(record.message for record in steps))
    return ("skipped", f"nothing to do: {reasons}") if steps else ("aborted", "no step has ended")


def explain_location(steps: Sequence[Finished], variant: str | None, files: Sequence[str]) -> str:
    """Where to look for an incorrect variant's error: in `files`, its sources, with the smallest
    failing workload that a step found, else the first. Empty if the variant is correct or None."""
    checked = [checks for output in outputs_of(steps, VerifyOutput) for checks in output.variants]
    of_variant = [checks.first_failure for checks in checked if checks.variant == variant]
    failures = list(filter(None, of_variant))
    if variant is None or not failures:
        return ""
    smallest = [case for output in outputs_of(steps, DebugOutput) for case in output.smallest]
    failure = next((case.check for case in smallest if case.variant == variant), failures[0])
    message = one_line(failure.message).rstrip(".")
    return f"Look in {', '.join(files)}: {message}" if files else message
