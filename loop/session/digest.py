"""`loop report --format summary`: a session for a job summary or a comment."""

from pathlib import Path

from loop.base.errors import ExitCode
from loop.base.places import project
from loop.base.screen import Screen
from loop.session.digest_page import digest
from loop.session.report import ended, find


def summarise(name: str, target: Path | None, limit: int, link: str, screen: Screen) -> int:
    """Verdict, what failed and ratios, in at most `limit` bytes."""
    folder = find(project(target, Path.cwd()).sessions, name)
    screen.data(digest(ended(folder), folder.finished(), limit, link))
    return ExitCode.OK
