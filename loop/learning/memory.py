"""What earlier sessions say of a failure, at the moment it happens; and what is kept so that later ones can."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.places import Project
from loop.learning.failures import cure_of, remembered
from loop.learning.remembered import sentence
from loop.library import targets
from loop.model.index import SessionRow
from loop.model.memory import Cure, Memory
from loop.model.record import Finished, SessionHead, latest_attempts
from loop.model.snapshot import Change
from loop.repository import changed_below, text_at
from loop.store import index, snapshots
from loop.store.failures import of_step
from loop.store.sessions import RECENT, SessionFolder

REMEMBERED = 2000
"""Sessions that are looked through when a step has failed."""


@dataclass
class Recall:
    """The failures of a project's sessions before one of them."""

    project: Project
    session: str
    """Id of the session that asks: what came after it does not count."""
    answers: dict[str, str] = field(default_factory=dict)
    """Key of a signature to the pattern that was accepted as its answer."""

    @cached_property
    def rows(self) -> list[SessionRow]:
        """The last sessions before this one, oldest first."""
        found = index.rows(self.project.sessions, last=REMEMBERED)
        return [row for row in found if not row.recorded and row.id < self.session]

    def memories(self, record: Finished) -> Iterator[Memory]:
        """What was seen before of a step that failed."""
        for one in of_step(record) if record.status == "failed" else ():
            found = remembered(self.rows, one.key)
            if found is not None:
                yield found

    def lines(self, record: Finished) -> tuple[str, ...]:
        """The same in words, and which pattern answers it."""
        try:
            said = [sentence(one, self._change(one.cure)) for one in self.memories(record)]
        except LoopError as error:
            said = [f"earlier sessions could not be asked: {error.message}"]
        keys = [one.key for one in of_step(record)] if record.status == "failed" else []
        named = dict.fromkeys(self.answers[key] for key in keys if key in self.answers)
        where = [] if self.project.bundled else ["--target", str(self.project.target)]
        answers = (shlex.join(["loop", "run", "pattern", name, *where]) for name in named)
        return (*said, *(f"answered by: {answer}" for answer in answers))

    def _change(self, cure: Cure | None) -> Change | None:
        return change_of(self.project, cure) if cure is not None else None


def change_of(project: Project, cure: Cure) -> Change | None:
    """What differs in the target's files between a failure and its cure; None where they were not kept."""
    failed, passed = (SessionFolder(project.sessions / name) for name in (cure.failed, cure.session))
    before, after = snapshots.every(failed)[:1], snapshots.every(passed)[-1:]
    if not before or not after:
        return None
    return snapshots.change(before[0], after[0], committed(project.target))


def committed(target: Path) -> Callable[[str, str], str | None]:
    """What a commit of a target's repository held."""
    return lambda commit, name: text_at(target, commit, name)


def keep_sources(project: Project, head: SessionHead, folder: SessionFolder, walked: Sequence[Finished]) -> str:
    """Keep the target's files where a step failed, or passed that had failed before; why it could not be done."""
    if not any(one.status == "failed" for one in walked) and not _may_cure(project, head, walked):
        return ""
    try:
        if targets.ground(project) == head.ground:
            commit = head.revision.commit
            dirty = changed_below(project.target, commit) if commit else set()
            snapshots.take(folder, head.ground, targets.ground_files(project), project.target, commit, dirty)
    except LoopError as error:
        return f"the target's files could not be kept for comparison: {error.message}"
    return ""


def _may_cure(project: Project, head: SessionHead, walked: Sequence[Finished]) -> bool:
    """Whether a step passed that failed in an earlier session which nothing has cured yet."""
    passed = {(one.pattern, one.step) for one in latest_attempts(walked) if one.status == "passed"}
    found = index.rows(project.sessions, last=RECENT)
    rows = [row for row in found if not row.recorded and row.id <= head.id]
    return any(
        (one.pattern, one.step) in passed and _open(rows, at, one.key, head.id)
        for at, row in enumerate(rows)
        for one in row.failures
    )


def _open(rows: Sequence[SessionRow], at: int, key: str, session: str) -> bool:
    """Whether a failure was not cured before this session."""
    failure = next(one for one in rows[at].failures if one.key == key)
    cure = cure_of(rows, at, failure)
    return cure is None or cure.session == session


def failures_json(recall: Recall, finished: Sequence[Finished]) -> list[dict[str, object]]:
    """What `--json` says of the steps that failed."""
    failed = [one for one in latest_attempts(finished) if one.status == "failed"]
    return [
        {
            "step": f"{record.pattern}/{record.step}",
            "message": record.message,
            "signatures": [{"key": one.key, "text": one.text} for one in of_step(record)],
            "seen_before": list(recall.lines(record)),
        }
        for record in failed
    ]
