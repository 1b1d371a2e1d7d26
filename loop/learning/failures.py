"""Earlier sessions with the same failure, and what cured it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from loop.base.errors import LoopError
from loop.base.places import Project
from loop.learning.prediction import FACTS
from loop.model.index import FailureSeen, SessionRow
from loop.model.record import Finished, latest_attempts
from loop.report import format as say
from loop.store import index
from loop.store.fingerprints import fingerprints_of_step

REMEMBERED = 2000
"""Number of latest sessions that are searched when a step has failed."""
LOOKED_AT = 12
"""Number of latest occurrences of a failure whose cures are searched."""
LABELS = {"cuda": "nvcc", "gpu": "GPU"}
SHOWN = 3
"""Most changed facts in a sentence; the rest is counted."""
HASH = 12


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


def remembered_failure(rows: Sequence[SessionRow], key: str) -> tuple[list[str], Cure | None]:
    """Sessions that had a failure, latest first, and the latest cure.

    `rows`: earlier sessions, oldest first. `key`: fingerprint of the failure.
    """
    met = [(place, failure) for place, row in enumerate(rows) for failure in row.failures if failure.key == key]
    cures = (_cure_of(rows, place, failure) for place, failure in met[: -LOOKED_AT - 1 : -1])
    sessions = dict.fromkeys(rows[place].id for place, _ in reversed(met))
    return list(sessions), next((cure for cure in cures if cure), None)


def _cure_of(rows: Sequence[SessionRow], place: int, failure: FailureSeen) -> Cure | None:
    """The first later session on the same target, device and variants that passed the failed step.

    A failure for other variants only counts as passed. `place`: index of the failed session.
    """
    failed, step = rows[place], (failure.pattern, failure.step)
    if failure.cured_by == failed.id:
        return Cure(failed=failed.id, session=failed.id)
    variants = {*failed.variants, *failed.emulated}
    for later in rows[place + 1 :]:
        same = not later.recorded and (later.target, later.device) == (failed.target, failed.device)
        if not same or not variants <= {*later.variants, *later.emulated}:
            continue
        status = next((run.status for run in reversed(later.steps) if (run.pattern, run.step) == step), "")
        subjects = {other.subject for other in later.failures if (other.pattern, other.step) == step}
        others_only = bool(failure.subject) and bool(subjects) and not subjects & {"", failure.subject}
        if status == "passed" or (status == "failed" and others_only):
            return _between(failed, later)
    return None


def _between(failed: SessionRow, passed: SessionRow) -> Cure:
    """Everything on record that changed from one session to another."""
    pairs = [(LABELS.get(n, n), getattr(failed.environment, n), getattr(passed.environment, n)) for n in FACTS]
    pairs += [("loop", failed.loop_version, passed.loop_version), ("threads", failed.threads, passed.threads)]
    changed = [(name, before, after) for name, before, after in pairs if before != after]
    commits = (failed.commit, passed.commit) if failed.commit and passed.commit else None
    return Cure(
        failed=failed.id,
        session=passed.id,
        environment=tuple(f"{name} {a or 'not there'} -> {b or 'not there'}" for name, a, b in changed if a or b),
        commits=commits if commits and commits[0] != commits[1] else None,
        sources=failed.ground != passed.ground,
    )


def seen_before_sentence(sessions: Sequence[str], cure: Cure | None) -> str:
    """A sentence: `seen before: session X (and 2 more); cured in session Y by ...`."""
    more = len(sessions) - 1
    text = f"seen before: session {sessions[0]}" + (f" (and {more} more)" if more else "")
    if cure is None:
        return f"{text}; no session has got past it yet"
    text += "; gone when that was resumed" if cure.session == cure.failed else f"; cured in session {cure.session}"
    changes, rest = list(cure.environment[:SHOWN]), len(cure.environment) - SHOWN
    changes += [say.count(rest, "more fact")] if rest > 0 else []
    changes += ["other files of the target"] if cure.sources else []
    changes += [f"commits {cure.commits[0][:HASH]}..{cure.commits[1][:HASH]}"] if cure.commits else []
    return text + (f" by {'; '.join(changes)}" if changes else ", with nothing changed that is on record")


@dataclass
class Recall:
    """Failures of a project's sessions before a given one."""

    project: Project
    session: str
    """Id of the current session; later sessions do not count."""

    @cached_property
    def rows(self) -> list[SessionRow]:
        """The latest sessions before this one, oldest first."""
        rows = index.rows(self.project.sessions, last=REMEMBERED)
        return [row for row in rows if not row.recorded and row.id < self.session]

    def lines(self, record: Finished) -> tuple[str, ...]:
        """A sentence for each error of a failed step that occurred before; empty otherwise."""
        keys = [failure.key for failure in fingerprints_of_step(record)] if record.status == "failed" else []
        try:
            memories = [remembered_failure(self.rows, key) for key in keys]
        except LoopError as error:
            return (f"earlier sessions could not be asked: {error.message}",)
        return tuple(seen_before_sentence(sessions, cure) for sessions, cure in memories if sessions)

    def failed(self, finished: Sequence[Finished]) -> tuple[dict[str, object], ...]:
        """Each failed step, with its errors and their earlier occurrences."""
        return tuple(
            {
                "step": f"{record.pattern}/{record.step}",
                "message": record.message,
                "signatures": [
                    failure.model_dump(include={"text", "key", "subject"})
                    for failure in fingerprints_of_step(record)
                ],
                "seen_before": self.lines(record),
            }
            for record in latest_attempts(finished)
            if record.status == "failed"
        )
