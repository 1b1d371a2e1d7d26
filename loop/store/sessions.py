"""Create, find and read session folders. `sessions/<id>/` has head, journal, samples, record, report."""

import contextlib
import datetime
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.model.history import RecordedSession
from loop.model.output import EarlierTry, VerifyOutput, outputs_of
from loop.model.record import Finished, Line, Opened, SessionHead, SessionRecord
from loop.store import journal

HEAD, RECORD, REPORT, LOCK, SAMPLES = "session.json", "record.json", "report.md", "lock", "samples"
CHANGES, RECORDED, RESERVE = "changes", "recorded.json", ".reserve"
MAX_EARLIER = 50  # Most earlier sessions that `earlier_sessions` looks at.

T = TypeVar("T", SessionHead, SessionRecord, RecordedSession)


@dataclass(frozen=True)
class SessionFolder:
    """One session on disk."""

    path: Path

    @property
    def id(self) -> str:
        """Name of the session."""
        return self.path.name

    @property
    def report(self) -> Path:
        """Path of the session's report."""
        return self.path / REPORT

    def lock(self) -> AbstractContextManager[object]:
        """Lock the session for writing. Raises Held when another process has the lock."""
        return locked(self.path / LOCK)

    @contextlib.contextmanager
    def locked_with_head(self, head: SessionHead) -> Iterator[None]:
        """Lock the session while it runs, and write its head. Removes the folder if that write fails."""
        try:
            with self.lock():
                self.write_head(head)
                yield
        except LoopError:
            if not (self.path / HEAD).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def head(self) -> SessionHead:
        """The facts stored when the session began. Raises LoopError when the file is damaged."""
        return read_stored(SessionHead, self.path / HEAD)

    def record(self) -> SessionRecord | None:
        """The session's results; None until the session has finished."""
        path = self.path / RECORD
        return read_stored(SessionRecord, path) if path.exists() else None

    def lines(self) -> list[Line]:
        """All journal lines. Raises LoopError when lines are damaged, or missing since the record."""
        lines, record = journal.read_journal(self.path / journal.NAME), None
        with contextlib.suppress(LoopError):  # `record()` reports damage to its own caller.
            record = self.record()
        if damage := describe_lost_lines(self.path, record, lines):
            raise WorkFailed(damage, hint=f"move {self.path} aside")
        return lines

    def finished(self) -> tuple[Finished, ...]:
        """The steps that have ended, in journal order."""
        return journal.finished_steps(self.lines())

    def write_reserve(self) -> None:
        """Write a spare file, which is deleted on a full disk. Raises LoopError when there is no room for it."""
        try:
            (self.path / RESERVE).write_bytes(os.urandom(1 << 20))  # No file system can compress random bytes.
        except OSError as error:
            raise journal.write_error(self.path / RESERVE, error) from error

    def free_reserve(self) -> None:
        """Delete the spare file, so that the last records fit on a full disk."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE).unlink(missing_ok=True)

    def write_head(self, head: SessionHead) -> None:
        """Store the head: the facts known when the session begins."""
        sums.write_sealed(self.path / HEAD, head)

    def write_record(self, record: SessionRecord) -> None:
        """Store the record: the session's results."""
        sums.write_sealed(self.path / RECORD, record)

    def write_report(self, text: str, figures: Mapping[str, str]) -> None:
        """Store the report. `figures`: path relative to the report, to the figure's text (SVG)."""
        write_figures(self.path, figures)
        write_atomic(self.report, text)

    def write_samples(self, name: str, rows: Sequence[Any]) -> str:
        """Store raw timings as `samples/NAME.json`; return that path, relative to the session."""
        folder = self.path / SAMPLES
        folder.mkdir(exist_ok=True)
        sums.write_sealed(folder / f"{name}.json", {"format": 1, "segments": list(rows)})
        return f"{SAMPLES}/{name}.json"


def describe_lost_lines(folder: Path, record: SessionRecord | None, lines: Sequence[Line]) -> str:
    """A message that the journal has fewer lines than its record counted; empty if not, or without record."""
    if record is None or len(lines) >= record.lines:
        return ""
    first_missing, path = len(lines) + 1, folder / journal.NAME
    return f"{path}:{first_missing}: damaged: cut off, lines {first_missing} to {record.lines} are missing"


def write_figures(folder: Path, figures: Mapping[str, str]) -> None:
    """Write figures (relative path to text) in folder `folder`. Raises LoopError when a write fails."""
    for name, text in figures.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise journal.write_error(path.parent, error) from error
        write_atomic(path, text)


def create_session(root: Path, plan: str, now: datetime.datetime) -> SessionFolder:
    """Create an empty session folder named by time and plan. Raises LoopError when that fails."""
    stem = f"{now:%Y-%m-%d-%H%M%S}-{plan}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
            with contextlib.suppress(FileExistsError):
                (root / name).mkdir()
                return SessionFolder(root / name)
    except OSError as error:
        raise journal.write_error(root, error) from error
    raise WorkFailed(f"{root}: a hundred sessions began in this second", hint="try again")


def import_session(session: Path, root: Path) -> Path:
    """Copy a session's folder, which may come from elsewhere, into the folder `root` of all sessions. Returns its
    folder there. One of that name stays if its journal begins with the new one; it is replaced if the new journal
    begins with all its lines. Else raises WorkFailed."""
    destination = root / session.name
    if destination.exists():
        paths = (folder / journal.NAME for folder in (destination, session))
        local, brought = (path.read_text(errors="replace") if path.is_file() else "" for path in paths)
        if brought and local.startswith(brought):  # An earlier call copied it; it may have gone on here since.
            return destination
        whole_lines = local[: local.rfind("\n") + 1]
        if not whole_lines or not brought.startswith(whole_lines):
            raise WorkFailed(f"{destination} is there already, and went on here meanwhile", hint="move it aside")
    # At any moment `destination` or its `.old` copy holds a whole session.
    new, old = destination.with_name(f".{session.name}.new"), destination.with_name(f".{session.name}.old")
    for stale in (new, old):
        shutil.rmtree(stale, ignore_errors=True)
    shutil.copytree(session, new)  # Makes `root`, too.
    if destination.exists():
        destination.rename(old)
    new.rename(destination)
    shutil.rmtree(old, ignore_errors=True)
    return destination


def list_sessions(root: Path) -> list[SessionFolder]:
    """All sessions below `root`, oldest first; empty when the folder is missing."""
    if not root.is_dir():
        return []
    names = [path.name for path in root.iterdir() if (path / HEAD).is_file()]
    # Names begin with the time. Compare numbers as integers, so that `-10` sorts after `-2`.
    names.sort(key=lambda name: [int(part) if part.isdigit() else part for part in re.split("([0-9]+)", name)])
    return [SessionFolder(root / name) for name in names]


def find_session(root: Path, name: str) -> SessionFolder:
    """The session with this id, beginning of an id, `last` or `last~1`. Raises UsageError for none or several."""
    folders = list_sessions(root)
    last_match = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if last_match and int(last_match[1] or 0) < len(folders):
        return folders[-1 - int(last_match[1] or 0)]
    matches = [folder for folder in folders if folder.id.startswith(name)]
    matches = [folder for folder in matches if folder.id == name] or matches
    if len(matches) == 1:
        return matches[0]
    suggestions = ", ".join(folder.id for folder in matches or folders[-5:])
    hint = f"one of {suggestions}" if suggestions else "`loop run session` makes one"
    problem = f"{name}: {len(matches)} sessions begin so" if matches else f"{root}: no session {name}"
    raise UsageError(problem, hint=hint)


def read_stored(model: type[T], path: Path) -> T:
    """Read a file of a session folder as `model`. Raises LoopError when it is damaged or unreadable."""
    try:
        return sums.read_sealed(model, path, f"move {path.parent} aside")
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def running_seconds(lines: Sequence[Line]) -> float:
    """Wall seconds in which the session ran. Before each `Opened` line it was paused."""
    pairs = [(line, later) for line, later in pairwise(lines) if not isinstance(later.event, Opened)]
    return sum(max(0.0, (later.at - line.at).total_seconds()) for line, later in pairs)


def earlier_sessions(
    root: Path, head: SessionHead, key_of: Callable[[SessionHead], object]
) -> Iterator[tuple[SessionFolder, SessionHead, tuple[Finished, ...]]]:
    """Of the last `MAX_EARLIER` sessions before `head`, those for which `key_of` gives the same: oldest first,
    with head and ended steps. Later ones do not count, so that a resumed session sees the same past. Damaged ones
    are skipped, with a remark."""
    key, folders = key_of(head), list_sessions(root)
    ids = [folder.id for folder in folders]
    for folder in folders[: ids.index(head.id) if head.id in ids else None][-MAX_EARLIER:]:
        try:
            earlier_head = folder.head()
            if key_of(earlier_head) == key:
                yield folder, earlier_head, folder.finished()
        except LoopError as error:
            remark_once(f"left out: {error.message}")


def verified_builds(root: Path, head: SessionHead) -> tuple[EarlierTry, ...]:
    """Builds that earlier sessions of the same target and device verified, oldest first.
    One entry per session and variant, from the variant's last verification."""
    attempts = []
    target_sessions = earlier_sessions(root, head, lambda other: (other.target, other.target_folder, other.device))
    for folder, earlier_head, steps in target_sessions:
        verified = [checks for output in outputs_of(steps, VerifyOutput) for checks in output.variants]
        for variant, checks in {checks.variant: checks for checks in verified}.items():
            attempt = EarlierTry(
                session=folder.id,
                variant=variant,
                build_id=checks.build_id,
                ground=earlier_head.ground,
                hypothesis=earlier_head.hypothesis,
                right=checks.is_right,
                message=checks.first_failure.message if checks.first_failure else "",
            )
            attempts.append(attempt)
    return tuple(attempts)
