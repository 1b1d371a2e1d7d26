"""`loop worktrees`: folders of loop's own in which targets were edited; those that nobody needs any more go."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.locks import held
from loop.base.places import project, state_folder
from loop.base.screen import Screen
from loop.model.record import RESUMABLE
from loop.repository import leftover
from loop.repository.leftover import Kept
from loop.store.sessions import HEAD, LOCK, SessionFolder

State = Literal["in use", "waits", "left over", "unknown"]
GROUND = 8
"""Letters of the target's hash that end the name of a session's worktree."""
REMOVE = "loop worktrees --remove"


@dataclass(frozen=True)
class Place:
    """One worktree and where it stands."""

    kept: Kept
    state: State
    why: str
    edits: dict[str, int] | None = None
    """Uncommitted edits of one that may go; None where they are not known, or not asked for."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.kept.root.name

    @property
    def said(self) -> str:
        """Its edits in words."""
        if self.state in ("in use", "waits"):
            return "-"
        if self.edits is None:
            return "not known" if any(self.kept.root.iterdir()) else "none"
        files, lines = len(self.edits), sum(self.edits.values())
        return f"{files} file{'s' * (files != 1)}, {lines} line{'s' * (lines != 1)}" if files else "none"


def folder() -> Path:
    """Where they are."""
    return state_folder() / "worktrees"


def places(sessions: Path) -> Iterator[Place]:
    """All worktrees; `sessions`: where sessions are looked for when a worktree does not say whose it is."""
    for kept in leftover.every(folder()):
        state, why = _state(kept, sessions)
        yield Place(kept, state, why, None if state in ("in use", "waits") else kept.edits())


def left_over(sessions: Path) -> list[Place]:
    """Those that nobody needs any more."""
    return [one for one in places(sessions) if one.state == "left over"]


def _state(kept: Kept, sessions: Path) -> tuple[State, str]:
    parts = kept.root.name.split("-")
    if parts[0] == "bisect" and len(parts) > 1 and parts[1].isdigit():
        alive = psutil.pid_exists(int(parts[1]))
        return ("in use", f"process {parts[1]} bisects") if alive else ("left over", "its bisection was killed")
    guess = sessions / kept.root.name[: -GROUND - 1]
    owner = kept.owner or (guess if (guess / HEAD).is_file() else None)
    if owner is None:
        return "unknown", f"it does not say whose it is, and no session in {sessions} has its name"
    return _of_session(SessionFolder(owner))


def _of_session(session: SessionFolder) -> tuple[State, str]:
    if not (session.path / HEAD).is_file():
        return "left over", f"its session is gone: {session.path}"
    if held(session.path / LOCK):
        return "in use", f"{session.id} runs"
    try:
        record = session.record()
        if (record.status if record else None) in (None, *RESUMABLE):
            return "waits", session.head().resume_command
    except LoopError as error:
        return "unknown", error.message
    return "left over", f"{session.id} has ended"


@dataclass(frozen=True)
class WorktreesRequest:
    """What is asked for."""

    names: tuple[str, ...] = ()
    """Those to remove; none: all that are left over."""
    remove: bool = False
    discard_edits: bool = False
    target: Path | None = None
    json: bool = False


def show_worktrees(request: WorktreesRequest, screen: Screen) -> int:
    """List them, or remove what nobody needs; 1 where something stays for its edits."""
    found = list(places(project(request.target, Path.cwd()).sessions))
    chosen = _chosen(request, found)
    gone, stay = _remove(chosen, request.discard_edits) if request.remove else ([], [])
    if request.json:
        rows = [_fields(one, removed=one in gone) for one in found]
        screen.data(to_json({"schema_version": 1, "folder": folder(), "worktrees": rows}))
    elif request.remove:
        _tell(gone, stay, screen)
    else:
        _list(found, screen)
    return ExitCode.GATE_FAILED if stay else ExitCode.OK


def _chosen(request: WorktreesRequest, found: Sequence[Place]) -> list[Place]:
    """What would be removed. Raises LoopError for a name that is not there, or is in use."""
    by_name = {one.name: one for one in found}
    for name in request.names:
        if name not in by_name:
            raise UsageError(f"{folder()}: no worktree {name!r}", hint="loop worktrees")
        if by_name[name].state == "in use":
            raise UsageError(f"{name} is in use: {by_name[name].why}", hint="wait for it to end")
        if by_name[name].state == "waits":
            raise UsageError(f"a session waits for {name}", hint=f"end it: {by_name[name].why} --decline")
    if request.names:
        return [by_name[name] for name in dict.fromkeys(request.names)]
    return [one for one in found if one.state == "left over"]


def _remove(chosen: Sequence[Place], discard: bool) -> tuple[list[Place], list[Place]]:
    """What was taken away, and what stays because of its edits."""
    stay = [one for one in chosen if one.said != "none" and not discard]
    gone = [one for one in chosen if one not in stay]
    for one in gone:
        one.kept.remove()
    return gone, stay


def _fields(one: Place, *, removed: bool) -> dict[str, object]:
    return {
        "name": one.name,
        "path": one.kept.root,
        "state": one.state,
        "why": one.why,
        "session": one.kept.owner,
        "edits": one.edits,
        "removed": removed,
    }


def _tell(gone: Sequence[Place], stay: Sequence[Place], screen: Screen) -> None:
    for one in gone:
        screen.data(f"removed {one.kept.root}")
    if not gone and not stay:
        screen.say("nothing is left over")
    for one in stay:
        screen.say(f"{one.name} stays: uncommitted edits, {one.said}, in {one.kept.root}")
    if stay:
        screen.say(f"look at them first; to lose them: {REMOVE} --discard-edits {' '.join(o.name for o in stay)}")


def _list(found: Sequence[Place], screen: Screen) -> None:
    if not found:
        screen.say(f"no worktrees in {folder()}")
        return
    screen.table(("worktree", "", "edits", "why"), [(one.name, one.state, one.said, one.why) for one in found])
    if any(one.state == "left over" for one in found):
        screen.say(f"take away what is left over: {REMOVE}")
