"""Session folders on disk, written as a session writes them."""

from pathlib import Path
from typing import Any

from loop.model.record import Event
from loop.store.journal import Journal
from loop.store.sessions import SessionFolder
from tests.makers import make_record, make_session_head


def make_session(root: Path, name: str, *events: Event, status: str = "passed", **head: Any) -> SessionFolder:
    """A session with these events in its journal that ended so; still open where the status is empty."""
    folder = SessionFolder(root / name)
    folder.path.mkdir(parents=True)
    session_head = make_session_head(id=name, **head)
    folder.write_head(session_head)
    journal = Journal(folder.path / "journal.jsonl")
    for event in events:
        journal.append(event)
    journal.close()
    if status:
        folder.write_record(make_record(session_head, status=status))
    return folder
