"""Earlier sessions with the same failure, and what cured it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from loop.base.errors import LoopError
from loop.base.places import Project
from loop.learning.prediction import FACTOR_BY_FACT
from loop.model.index import FailureSeen, SessionRow
from loop.model.record import Finished, latest_attempts
from loop.report import format as say
from loop.store import index
from loop.store.fingerprints import fingerprints_of_step

SEARCHED_SESSIONS = 2000
"""Number of latest sessions that are searched when a step has failed."""
MOST_CURE_SEARCHES = 12
"""Number of latest occurrences of a failure whose cures are searched."""
FACT_LABELS = {"cuda": "nvcc", "gpu": "GPU"}
MOST_FACTS = 3
"""Most changed facts in a sentence; the rest is counted."""
HASH_LENGTH = 12


@dataclass(frozen=True)
class Cure:
    """The first later session in which the same step passed, and what had changed."""

    failed: str
    """Id of the session in which the step failed."""
    session: str
    """Id of the session in which the step passed; equal to `failed` if that was resumed."""
    environment: tuple[str, ...] = ()
    """Changed facts, as `torch 2.3.0 -> 2.4.1`."""
    commits: tuple[str, str] | None = None
    """The target's commits at failure and at cure; None if equal or not committed."""
    sources: bool = False


def find_earlier_failures(rows: Sequence[SessionRow], key: str) -> tuple[list[str], Cure | None]:
    """Sessions that had a failure, latest first, and the latest cure.

    `rows`: earlier sessions, oldest first. `key`: fingerprint of the failure.
    """
    occurrences = [
        (place, failure) for place, row in enumerate(rows) for failure in row.failures if failure.key == key
    ]
    cures = (_find_cure(rows, place, failure) for place, failure in occurrences[: -MOST_CURE_SEARCHES - 1 : -1])
    sessions = dict.fromkeys(rows[place].id for place, _ in reversed(occurrences))
    return list(sessions), next((cure for cure in cures if cure), None)


def _find_cure(rows: Sequence[SessionRow], place: int, failure: FailureSeen) -> Cure | None:
    """The first later session on the same target, device and variants that passed the failed step.

    A failure for other variants only counts as passed. `place`: index of the failed session.
    """
    failed_session, step = rows[place], (failure.pattern, failure.step)
    if failure.cured_by == failed_session.id:
        return Cure(failed=failed_session.id, session=failed_session.id)
    variants = {*failed_session.variants, *failed_session.emulated}
    for later_session in rows[place + 1 :]:
        is_same_target = not later_session.recorded and (later_session.target, later_session.device) == (
            failed_session.target,
            failed_session.device,
        )
        if not is_same_target or not variants <= {*later_session.variants, *later_session.emulated}:
            continue
        status = next((run.status for run in reversed(later_session.steps) if (run.pattern, run.step) == step), "")
        subjects = {other.subject for other in later_session.failures if (other.pattern, other.step) == step}
        is_other_subject = bool(failure.subject) and bool(subjects) and not subjects & {"", failure.subject}
        if status == "passed" or (status == "failed" and is_other_subject):
            return _cure_between(failed_session, later_session)
    return None


def _cure_between(failed_session: SessionRow, passed_session: SessionRow) -> Cure:
    """Everything on record that changed from one session to another."""
    facts = [
        (FACT_LABELS.get(n, n), getattr(failed_session.environment, n), getattr(passed_session.environment, n))
        for n in FACTOR_BY_FACT
    ]
    facts += [
        ("loop", failed_session.loop_version, passed_session.loop_version),
        ("threads", failed_session.threads, passed_session.threads),
    ]
    changed = [(name, before, after) for name, before, after in facts if before != after]
    commits = (
        (failed_session.commit, passed_session.commit) if failed_session.commit and passed_session.commit else None
    )
    return Cure(
        failed=failed_session.id,
        session=passed_session.id,
        environment=tuple(f"{name} {a or 'not there'} -> {b or 'not there'}" for name, a, b in changed if a or b),
        commits=commits if commits and commits[0] != commits[1] else None,
        sources=failed_session.ground != passed_session.ground,
    )


def describe_earlier_failures(sessions: Sequence[str], cure: Cure | None) -> str:
    """A sentence: `seen before: session X (and 2 more); cured in session Y by ...`."""
    more_sessions = len(sessions) - 1
    text = f"seen before: session {sessions[0]}" + (f" (and {more_sessions} more)" if more_sessions else "")
    if cure is None:
        return f"{text}; no session has got past it yet"
    text += "; gone when that was resumed" if cure.session == cure.failed else f"; cured in session {cure.session}"
    changes, hidden_facts = list(cure.environment[:MOST_FACTS]), len(cure.environment) - MOST_FACTS
    changes += [say.count(hidden_facts, "more fact")] if hidden_facts > 0 else []
    changes += ["other files of the target"] if cure.sources else []
    changes += (
        [f"commits {cure.commits[0][:HASH_LENGTH]}..{cure.commits[1][:HASH_LENGTH]}"] if cure.commits else []
    )
    return text + (f" by {'; '.join(changes)}" if changes else ", with nothing changed that is on record")


@dataclass
class FailureHistory:
    """Failures of a project's sessions before a given one."""

    project: Project
    session: str
    """Id of the current session; later sessions do not count."""

    @cached_property
    def rows(self) -> list[SessionRow]:
        """The latest sessions before this one, oldest first."""
        rows = index.rows(self.project.sessions, last=SEARCHED_SESSIONS)
        return [row for row in rows if not row.recorded and row.id < self.session]

    def describe_failures(self, record: Finished) -> tuple[str, ...]:
        """A sentence for each error of a failed step that occurred before; empty otherwise."""
        keys = [failure.key for failure in fingerprints_of_step(record)] if record.status == "failed" else []
        try:
            histories = [find_earlier_failures(self.rows, key) for key in keys]
        except LoopError as error:
            return (f"earlier sessions could not be asked: {error.message}",)
        return tuple(describe_earlier_failures(sessions, cure) for sessions, cure in histories if sessions)

    def describe_failed_steps(self, finished: Sequence[Finished]) -> tuple[dict[str, object], ...]:
        """Each failed step, with its errors and their earlier occurrences."""
        return tuple(
            {
                "step": f"{record.pattern}/{record.step}",
                "message": record.message,
                "signatures": [
                    failure.model_dump(include={"text", "key", "subject"})
                    for failure in fingerprints_of_step(record)
                ],
                "seen_before": self.describe_failures(record),
            }
            for record in latest_attempts(finished)
            if record.status == "failed"
        )
