"""The ledger's rows, out of the index of sessions."""

import datetime
from pathlib import Path

from loop.model.index import SessionRow
from loop.model.ledger import Account, Avoided, Book, Spent, Worked
from loop.store import index


def book(root: Path) -> Book:
    """What all sessions of a folder cost, saved and brought."""
    rows, damaged = index.read(root)
    return Book(
        accounts=tuple(map(_account, rows)),
        spent=tuple(
            Spent(row.id, one.resource, one.rate, one.seconds, one.usd, one.basis)
            for row in rows
            for one in row.charges
        ),
        avoided=tuple(
            Avoided(
                row.id,
                one.pattern,
                one.evidence,
                one.minutes,
                one.minutes_low,
                one.minutes_high,
                one.usd,
                *one.interval_usd,
            )
            for row in rows
            for one in row.savings
        ),
        worked=tuple(Worked(row.id, run.pattern, run.seconds) for row in rows for run in row.runs),
        damaged=tuple(sorted((one.folder, one.reason) for one in damaged)),
    )


def _account(row: SessionRow) -> Account:
    """An open session has taken what its steps took so far."""
    is_open = row.status is None and not row.recorded
    started = row.started.astimezone(datetime.UTC) if row.started else None
    return Account(
        session=row.id,
        started=started.isoformat(timespec="microseconds") if started else None,
        target=row.target,
        plan=row.plan,
        device=row.device,
        gpu=row.environment.gpu,
        status=row.status,
        seconds=sum(run.seconds for run in row.runs) if is_open else row.seconds,
        recorded=row.recorded,
        energy_j=row.energy_j,
        accepted=row.gains.accepted,
        accepted_us=row.gains.accepted_us,
        unmeasured={one.resource: one.reason for one in row.unmeasured},
        judged=row.judged,
        notes=row.notes,
    )
