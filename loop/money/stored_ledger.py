"""The ledger's rows, out of the index of sessions."""

import functools
import json
import sqlite3
from pathlib import Path
from typing import Any

from loop.model.ledger import Account, Avoided, Book, Spent, Worked
from loop.store.database import COUNTED, asked
from loop.store.index import OLDEST_FIRST

JOINED = f"JOIN sessions USING (folder) WHERE {COUNTED} {OLDEST_FIRST}"


def book(root: Path, *, runs: bool = False) -> Book:
    """What all sessions of a folder cost, saved and brought. `runs`: with the runs of their patterns."""
    return asked(root, lambda database: _book(database, runs=runs))


def _book(database: sqlite3.Connection, *, runs: bool) -> Book:
    return Book(
        accounts=tuple(_account(one) for one in _accounts(database)),
        spent=tuple(map(Spent._make, _charges(database))),
        avoided=tuple(map(Avoided._make, _savings(database))),
        worked=tuple(map(Worked._make, _runs(database))) if runs else (),
        damaged=tuple((folder, _reason(problem, copy)) for folder, problem, copy in _damaged(database)),
    )


def _accounts(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """An open session has taken what its steps took so far."""
    return database.execute(f"""
        SELECT id, sessions.started, target, plan, device, gpu, status,
          CASE WHEN status IS NULL AND NOT recorded THEN
            (SELECT coalesce(sum(seconds), 0) FROM runs WHERE runs.folder = sessions.folder)
          ELSE seconds END,
          recorded, energy_j, accepted, accepted_us, unmeasured, judged, notes
        FROM sessions JOIN money USING (folder) WHERE {COUNTED} {OLDEST_FIRST}""").fetchall()


def _account(fields: tuple[Any, ...]) -> Account:
    *plain, unmeasured, judged, notes = fields
    return Account._make((*plain, _parsed(unmeasured), _parsed(judged), tuple(_parsed(notes))))


@functools.cache
def _parsed(text: str) -> Any:
    """Most sessions say the same: each text is read once. The value is shared, and never changed."""
    return json.loads(text)


def _charges(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    columns = "id, resource, rate, charges.seconds, charges.usd, basis"
    return database.execute(f"SELECT {columns} FROM charges {JOINED}").fetchall()


def _savings(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """In no order: they are only added up."""
    columns = "id, pattern, evidence, minutes, minutes_low, minutes_high, savings.usd, usd_low, usd_high"
    query = f"SELECT {columns} FROM savings CROSS JOIN sessions USING (folder) WHERE {COUNTED}"
    return database.execute(query).fetchall()


def _runs(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
    query = f"""
        SELECT id, pattern, runs.seconds FROM runs JOIN sessions USING (folder)
        WHERE {COUNTED} ORDER BY sessions.started, folder, position"""
    return database.execute(query).fetchall()


def _damaged(database: sqlite3.Connection) -> list[tuple[str, str, str | None]]:
    query = "SELECT folder, problem, copy_of FROM sessions WHERE problem != '' OR copy_of IS NOT NULL"
    return database.execute(f"{query} ORDER BY folder").fetchall()


def _reason(problem: str, copy_of: str | None) -> str:
    return f"a copy of session {copy_of}" if copy_of else problem
