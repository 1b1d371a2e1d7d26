"""What is known here of a job that was sent to another machine: enough to find it again after anything."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.documents.sums import read_sealed, sealed, write_sealed
from loop.base.errors import WorkFailed
from loop.jobs.folder import MADE, SENT, SESSIONS, JobFolder, every, read_text
from loop.jobs.setup import HOME
from loop.model.base import Model
from loop.store import journal
from loop.store.sessions import ORDER

SESSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}-[a-z0-9-]{1,80}")
"""Name of a session's folder."""


class Sent(Model):
    """A job on another machine."""

    format: int = 1
    """Format number."""
    host: str
    """Name in `hosts.yaml`."""
    project: str | None
    """Folder of the target; None for the bundled one."""
    sessions: str
    """Where its session goes here."""
    root: str = ""
    """Folder that was sent; empty where none was."""
    tree: str = ""
    """Its name there."""
    home: str
    """Home of the user there."""
    resumed: str = ""
    """The session that it goes on with."""
    past: tuple[str, ...] = ()
    """Sessions of here that it looks back on: they are not brought back."""
    began: float
    """Seconds since 1970 by the clock here."""
    last: bool = True
    """Whether a block of work ends with it; after `kernels check` it goes on."""
    keep_until: float | None = None
    """Until when the machine is needed, by that clock."""

    def here(self, text: str, job: str) -> str:
        """A line that was printed there, with the paths of here."""
        home_there = f"{self.home}/{HOME}"
        text = text.replace(f"{home_there}/jobs/{job}/{SESSIONS}", self.sessions)
        return text.replace(f"{home_there}/trees/{self.tree}", self.root) if self.root else text


def write(folder: JobFolder, sent: Sent) -> None:
    """Note where a job is, before it is sent."""
    write_sealed(folder.path / SENT, sent)


def read(folder: JobFolder) -> Sent | None:
    """Where a job is; None for one of this machine."""
    with contextlib.suppress(OSError):
        return read_sealed(Sent, folder.path / SENT)
    return None


def away(host: str = "") -> Iterator[tuple[JobFolder, Sent]]:
    """Jobs that were sent away, to any machine or to one, and have not been brought back; the oldest first."""
    for folder in every():
        sent = read(folder) if folder.rc is None else None
        if sent is not None and host in ("", sent.host):
            yield folder, sent


def take_in(folder: JobFolder, sent: Sent) -> list[Path]:
    """Put the sessions that a job made where those of here are; the folders.

    One that was put there when this was interrupted stays. Raises WorkFailed for any other that is there already:
    only the session that it went on with is replaced, and only where that did not go on here, too.
    """
    taken_in, root = [], Path(sent.sessions)
    for session in sorted((folder.path / SESSIONS).glob("*")):
        if not session.is_dir() or session.is_symlink() or not SESSION.fullmatch(session.name):
            continue
        place = root / session.name
        if session.name in sent.past:
            continue
        order = sealed(json.dumps({"began_ns": int(sent.began * 1e9)}))
        if place.exists():
            if session.name != sent.resumed and read_text(place / ORDER) == order:
                taken_in.append(place)
                continue
            if session.name != sent.resumed or not _goes_on(place, session):
                why = "went on here meanwhile" if session.name == sent.resumed else "is there already"
                raise WorkFailed(f"{place} {why}", hint=f"move it aside, then: loop jobs follow {folder.id}")
        root.mkdir(parents=True, exist_ok=True)
        fresh, old = root / f".{session.name}.new", root / f".{session.name}.old"
        for stale in (fresh, old):
            shutil.rmtree(stale, ignore_errors=True)
        shutil.copytree(session, fresh)
        if session.name != sent.resumed:  # It stands where it was begun by the clock of here.
            write_atomic(fresh / ORDER, order)
        if place.exists():
            place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old, ignore_errors=True)
        taken_in.append(place)
    shutil.rmtree(folder.path / MADE, ignore_errors=True)
    return taken_in


def _goes_on(here: Path, session: Path) -> bool:
    """Whether a session begins with all that the one of here holds."""
    lines = read_text(here / journal.NAME)
    return read_text(session / journal.NAME).startswith(lines[: lines.rfind("\n") + 1])
