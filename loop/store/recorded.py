"""Sessions recorded elsewhere, as folders beside this project's own: `recorded.json` with their raw rows."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.documents import sums, to_json
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.model.history import RESOURCES, HistorySession, RecordedSession
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.money import Charge, Unmeasured
from loop.store.journal import unwritable
from loop.store.sessions import left_out

NAME = "recorded.json"
RATE = "history"
"""Name of the rate at which recorded sessions were charged: what their reports state."""


def put(root: Path, sessions: Sequence[RecordedSession]) -> tuple[list[str], list[str]]:
    """Make a folder for each session; ids of those that are new, and of those that were there.

    All or nothing is refused: raises LoopError where one is there with other rows, before any is written. What was
    written before a kill or a full disk is taken as it is by the next import. Rows that say more replace those
    that are there.
    """
    there = [session for session in sessions if _refuse_another(root, session)]
    new = [session for session in sessions if session not in there]
    try:
        root.mkdir(parents=True, exist_ok=True)
        for one in new:
            _make(root, one)
        for one in there:
            if read(root / one.id) != one:
                sums.write_sealed(root / one.id / NAME, one)
    except OSError as error:
        raise unwritable(root, error) from error
    return [session.id for session in new], [session.id for session in there]


def _refuse_another(root: Path, session: RecordedSession) -> bool:
    """Whether the session is there. Raises LoopError where what is there says something else."""
    path = root / session.id
    if not path.exists():
        return False
    if _facts(read(path)) != _facts(session):
        raise UsageError(
            f"{path}: there is such a session already, with other rows than {session.row.id} has in this file",
            hint="give the history another `source`, or move that folder away",
        )
    return True


def _facts(session: RecordedSession) -> RecordedSession:
    """Its rows, as they read back; what else its reports say, and which patterns that was, may change."""
    row = session.row.model_copy(update={"applied": ()})
    rows = session.model_copy(update={"row": row, "patterns": {}, "stated": []})
    return RecordedSession.model_validate_json(to_json(rows))


def _make(root: Path, session: RecordedSession) -> None:
    """The folder with its file, whole or not at all."""
    temporary = root / f".{secrets.token_hex(8)}"
    temporary.mkdir()
    try:
        sums.write_sealed(temporary / NAME, session)
        os.rename(temporary, root / session.id)
    except OSError:
        if not (root / session.id / NAME).is_file():  # Another import may have been quicker.
            raise
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary)


def read(folder: Path) -> RecordedSession:
    """One recorded session. Raises LoopError when its file is damaged or of another format."""
    path = folder / NAME
    try:
        return sums.read_sealed(RecordedSession, path, f"move {folder} aside")
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def every(root: Path) -> list[RecordedSession]:
    """All recorded sessions of a folder, history by history, in their order; damaged ones are left out."""
    return sorted(_readable(root), key=lambda one: (one.history, one.position))


def _readable(root: Path) -> Iterator[RecordedSession]:
    for path in sorted(root.glob(f"recorded-*/{NAME}")):
        try:
            yield read(path.parent)
        except LoopError as error:
            left_out(error)


def row_of(session: RecordedSession) -> SessionRow:
    """A recorded session in the index."""
    gpu, charges = session.gpu.get("name"), tuple(_charges(session.row))
    return SessionRow(
        id=session.id,
        started=None,
        target="recorded elsewhere",
        plan="recorded",
        device="cuda",
        status=None,
        reason=session.row.outcome,
        grade=session.row.grade or "",
        seconds=session.row.minutes * 60,
        environment=Environment(processor="", gpu=str(gpu) if gpu else None),
        charges=charges,
        usd=sum(charge.usd for charge in charges),
        unmeasured=tuple(_unmeasured(session.row)),
        runs=tuple(_run(name, minutes) for name, minutes in session.patterns.items()),
        incorrect=("the kernel",) if session.row.correct is False else (),
        recorded=True,
    )


def _charges(row: HistorySession) -> Iterator[Charge]:
    for resource in RESOURCES:
        usd = row.usd_of(resource)
        if usd is not None:
            yield Charge(resource=resource, rate=RATE, seconds=row.minutes * 60, usd=usd, basis="stated")


def _unmeasured(row: HistorySession) -> Iterator[Unmeasured]:
    """What its report states nothing of."""
    for resource in RESOURCES:
        if row.usd_of(resource) is None:
            yield Unmeasured(resource=resource, reason="its report states none")


def _run(name: str, minutes: float) -> PatternRun:
    return PatternRun(pattern=name, status="passed", seconds=minutes * 60, started=None, whole=True)
