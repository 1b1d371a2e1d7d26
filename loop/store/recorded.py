"""Sessions recorded elsewhere, as folders beside this project's own: `recorded.json` with their raw rows."""

from collections.abc import Sequence
from pathlib import Path

from loop.base.documents import sums, to_json
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.model.history import RESOURCES, RecordedSession
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
    known = {session.id: read(root / session.id) for session in sessions if (root / session.id).exists()}
    for session in sessions:
        if session.id in known and _facts(known[session.id]) != _facts(session):
            raise UsageError(
                f"{root / session.id}: already there, with other rows than {session.row.id} has in this file",
                hint="give the history another `source`, or move that folder away",
            )
    try:
        for session in sessions:
            if known.get(session.id) != session:
                (root / session.id).mkdir(parents=True, exist_ok=True)
                sums.write_sealed(root / session.id / NAME, session)
    except OSError as error:
        raise unwritable(root, error) from error
    return [session.id for session in sessions if session.id not in known], [*known]


def _facts(session: RecordedSession) -> RecordedSession:
    """Its rows, as they read back; what else its reports say, and which patterns that was, may change."""
    row = session.row.model_copy(update={"applied": ()})
    rows = session.model_copy(update={"row": row, "patterns": {}})
    return RecordedSession.model_validate_json(to_json(rows))


def read(folder: Path) -> RecordedSession:
    """One recorded session. Raises LoopError when its file is damaged or of another format."""
    path = folder / NAME
    try:
        return sums.read_sealed(RecordedSession, path, f"move {folder} aside")
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def every(root: Path) -> list[RecordedSession]:
    """All recorded sessions of a folder, history by history, in their order; damaged ones are left out."""
    sessions = []
    for path in root.glob(f"recorded-*/{NAME}"):
        try:
            sessions.append(read(path.parent))
        except LoopError as error:
            left_out(error)
    return sorted(sessions, key=lambda session: (session.history, session.position))


def row_of(session: RecordedSession) -> SessionRow:
    """A recorded session in the index."""
    gpu, row, seconds = session.gpu.get("name"), session.row, session.row.minutes * 60
    stated = {resource: row.usd_of(resource) for resource in RESOURCES}
    charges = tuple(
        Charge(resource=resource, rate=RATE, seconds=seconds, usd=usd, basis="stated")
        for resource, usd in stated.items()
        if usd is not None
    )
    reason = "its report states none"
    missing = tuple(Unmeasured(resource=name, reason=reason) for name, usd in stated.items() if usd is None)
    runs = tuple(
        PatternRun(pattern=name, status="passed", seconds=minutes * 60, started=None, whole=True)
        for name, minutes in session.patterns.items()
    )
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
        charges=charges,
        usd=sum(charge.usd for charge in charges),
        unmeasured=missing,
        runs=runs,
        incorrect=("the kernel",) if row.correct is False else (),
        recorded=True,
    )
