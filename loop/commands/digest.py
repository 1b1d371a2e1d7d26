"""`loop report --format summary`: a session for a job summary or a comment."""

from pathlib import Path

from loop.errors import ExitCode, LoopError
from loop.places import project
from loop.report.digest import digest
from loop.screen import Screen
from loop.store import sessions


def summarise(name: str, target: Path | None, limit: int, link: str, screen: Screen) -> int:
    """Verdict, what failed and ratios, in at most `limit` bytes."""
    folder = sessions.find(project(target, Path.cwd()).sessions, name)
    record = folder.record()
    if record is None:
        raise LoopError(f"{folder.id} is not finished: it has no report yet", hint=folder.head().resume_command)
    screen.data(digest(record, folder.finished(), limit, link))
    return ExitCode.OK
