"""Earlier sessions with the same failure, and what cured it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loop.base.errors import LoopError
from loop.learning.prediction import FACTORS
from loop.library.definitions import Project
from loop.model.index import FailureSeen, SessionRow
from loop.model.record import Finished, SessionHead, latest_attempts
from loop.store import sessions
from loop.store.fingerprints import fingerprints_of_step

SEARCHED_SESSIONS = 2000  # Number of latest sessions that are searched when a step has failed.
MOST_SEARCHED_OCCURRENCES = 12  # Number of latest occurrences of a failure with cures to search.
FACT_LABELS = {"cuda": "nvcc", "gpu": "GPU", "loop_version": "loop"}
NOTHING_CHANGED = ", with nothing changed that is on record"


def describe_earlier_failures(rows: Sequence[SessionRow], fingerprint: str) -> str:
    """A sentence: `seen before: session X (and 2 more); cured in session Y by ...`. Empty if it is
    new. `rows`: earlier sessions, oldest first. `fingerprint`: key of the failure."""
    failures = [(place, failure) for place, row in enumerate(rows) for failure in row.failures]
    occurrences = [(place, seen) for place, seen in reversed(failures) if seen.key == fingerprint]
    sessions = list(dict.fromkeys(rows[place].id for place, _ in occurrences))
    if not sessions:
        return ""
    more = f" (and {len(sessions) - 1} more)" if len(sessions) > 1 else ""
    latest = occurrences[:MOST_SEARCHED_OCCURRENCES]
    cures = (_describe_cure(rows, place, failure) for place, failure in latest)
    cure = next(filter(None, cures), "no session has got past it yet")
    return f"seen before: session {sessions[0]}{more}; {cure}"


def _describe_cure(rows: Sequence[SessionRow], failed_index: int, failure: FailureSeen) -> str:
    """The first later session on the same target, device and variants that passed the failed step
    (or failed it for other variants alone), in words; or empty. `failed_index`: the failed one."""
    failed, step = rows[failed_index], (failure.pattern, failure.step)
    if failure.cured_by == failed.id:  # The session itself was resumed, and the step passed.
        return f"gone when that session was resumed{NOTHING_CHANGED}"
    for later in rows[failed_index + 1 :]:
        is_same_target = (later.target, later.device) == (failed.target, failed.device)
        has_variants = {*failed.variants, *failed.emulated} <= {*later.variants, *later.emulated}
        if later.recorded or not is_same_target or not has_variants:
            continue
        statuses = [run.status for run in later.steps if (run.pattern, run.step) == step]
        status = statuses[-1] if statuses else ""
        # `subject`: the variant that failed; empty if the failure has none.
        others = [other for other in later.failures if (other.pattern, other.step) == step]
        subjects = {other.subject for other in others}
        is_of_others = bool(failure.subject and subjects) and not subjects & {"", failure.subject}
        if status == "passed" or (status == "failed" and is_of_others):
            # What changed on record, such as `torch 2.3 -> 2.4`, files, commits.
            changes = []
            for fact in (*FACTORS, "loop_version", "threads"):
                holders: tuple[Any, Any] = (failed, later)
                if fact in FACTORS:
                    holders = (failed.environment, later.environment)
                before, after = getattr(holders[0], fact), getattr(holders[1], fact)
                if before != after and (before or after):
                    name = FACT_LABELS.get(fact, fact)
                    changes.append(f"{name} {before or 'not there'} -> {after or 'not there'}")
            changes += ["other files of the target"] if failed.ground != later.ground else []
            if failed.commit and later.commit and failed.commit != later.commit:
                changes.append(f"commits {failed.commit[:12]}..{later.commit[:12]}")
            if changes:
                return f"cured in session {later.id} by {'; '.join(changes)}"
            return f"gone in session {later.id}{NOTHING_CHANGED}"
    return ""


@dataclass
class FailureHistory:
    """Failures of a project's sessions before a given one."""

    project: Project
    head: SessionHead  # The current session; later sessions do not count.

    @cached_property
    def rows(self) -> list[SessionRow]:
        """The latest sessions before this one, oldest first, without recorded (imported) ones."""
        rows = sessions.rows(self.project.sessions, last=SEARCHED_SESSIONS)
        return [row for row in rows if not row.recorded and row.id < self.head.id]

    def describe_failures(self, record: Finished) -> tuple[str, ...]:
        """A sentence for each error of a failed step that occurred in an earlier session."""
        errors = fingerprints_of_step(record, self.head.ground) if record.status == "failed" else ()
        try:
            sentences = [describe_earlier_failures(self.rows, error.key) for error in errors]
        except LoopError as error:
            return (f"earlier sessions could not be asked: {error.message}",)
        return tuple(filter(None, sentences))

    def describe_failed_steps(self, finished: Sequence[Finished]) -> tuple[dict[str, object], ...]:
        """For JSON: each failed step, with its errors and their earlier occurrences."""
        steps, fields = list[dict[str, object]](), {"text", "key", "subject"}
        for record in latest_attempts(finished):
            if record.status == "failed":
                errors = fingerprints_of_step(record, self.head.ground)
                signatures = [error.model_dump(include=fields) for error in errors]
                step = {"step": record.label, "message": record.message, "signatures": signatures}
                steps.append({**step, "seen_before": self.describe_failures(record)})
        return tuple(steps)
