"""What earlier sessions say of a failure, at the moment it happens; and what is kept so that later ones can."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from loop.base.errors import LoopError
from loop.base.places import Project
from loop.learning.failures import Cure, remembered, sentence
from loop.library import targets
from loop.model.exported import FailedStep
from loop.model.index import SessionRow
from loop.model.record import Finished, SessionHead, latest_attempts
from loop.store import index, snapshots
from loop.store.fingerprints import of_step
from loop.store.sessions import RECENT, SessionFolder
from loop.store.snapshots import Change

REMEMBERED = 2000
"""Sessions that are looked through when a step has failed."""


@dataclass
class Recall:
    """The failures of a project's sessions before one of them."""

    project: Project
    session: str
    """Id of the session that asks: what came after it does not count."""

    @cached_property
    def rows(self) -> list[SessionRow]:
        """The last sessions before this one, oldest first."""
        rows = index.rows(self.project.sessions, last=REMEMBERED)
        return [row for row in rows if not row.recorded and row.id < self.session]

    def lines(self, record: Finished) -> tuple[str, ...]:
        """What was seen before of a step that failed; nothing of any other step."""
        keys = [failure.key for failure in of_step(record)] if record.status == "failed" else []
        try:
            memories = [memory for key in keys if (memory := remembered(self.rows, key)) is not None]
            sentences = [sentence(memory, change_of(self.project, memory.cure)) for memory in memories]
        except LoopError as error:
            sentences = [f"earlier sessions could not be asked: {error.message}"]
        return tuple(sentences)


def change_of(project: Project, cure: Cure | None) -> Change | None:
    """What differs in the target's files between a failure and its cure; None where they were not kept."""
    if cure is None:
        return None
    failed, passed = (SessionFolder(project.sessions / name) for name in (cure.failed, cure.session))
    before, after = snapshots.every(failed)[:1], snapshots.every(passed)[-1:]
    return snapshots.change(before[0], after[0]) if before and after else None


def keep_sources(project: Project, head: SessionHead, folder: SessionFolder, walked: Sequence[Finished]) -> str:
    """Keep the target's files where a step failed, or passed that had failed before; why it could not be done."""
    try:
        kept = any(record.status == "failed" for record in walked) or _may_cure(project, walked)
        if kept and targets.ground(project) == head.ground:
            snapshots.take(folder, head.ground, targets.ground_files(project), project.target)
    except LoopError as error:
        return f"the target's files could not be kept for comparison: {error.message}"
    return ""


def _may_cure(project: Project, walked: Sequence[Finished]) -> bool:
    """Whether a step passed that failed in one of the last sessions, this one included."""
    passed = {(record.pattern, record.step) for record in latest_attempts(walked) if record.status == "passed"}
    rows = index.rows(project.sessions, last=RECENT)
    return any((failure.pattern, failure.step) in passed for row in rows for failure in row.failures)


def failures(recall: Recall, finished: Sequence[Finished]) -> tuple[FailedStep, ...]:
    """The steps that failed, each with what earlier sessions say of it."""
    return tuple(
        FailedStep(
            step=f"{record.pattern}/{record.step}",
            message=record.message,
            signatures=of_step(record),
            seen_before=tuple(recall.lines(record)),
        )
        for record in latest_attempts(finished)
        if record.status == "failed"
    )
