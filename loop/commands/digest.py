"""`loop report --format summary`: a session for a job summary or a comment."""

from pathlib import Path

from loop.commands.report import ended, find
from loop.errors import ExitCode
from loop.places import project
from loop.report.digest import digest
from loop.screen import Screen


def summarise(name: str, target: Path | None, limit: int, link: str, screen: Screen) -> int:
    """Verdict, what failed and ratios, in at most `limit` bytes."""
    folder = find(project(target, Path.cwd()).sessions, name)
    screen.data(digest(ended(folder), folder.finished(), limit, link))
    return ExitCode.OK
