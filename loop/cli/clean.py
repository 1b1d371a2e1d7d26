"""`loop clean`: what nobody needs any more, and what can be made again; both ask first."""

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.locks import held
from loop.base.places import Project, cache_folder, project, state_folder
from loop.base.screen import Screen
from loop.builds.known_builds import QUESTIONS
from loop.model.base import Model, Printed
from loop.model.record import RESUMABLE
from loop.repository import leftover
from loop.repository.git import git
from loop.repository.leftover import KeptWorktree
from loop.repository.worktree import MADE_WITH, top_of
from loop.store import past_changes, sessions
from loop.store.sessions import HEAD, LOCK, SessionFolder

State = Literal["in use", "waits", "left over", "unknown"]
GROUND = 8
"""Letters of the hash that ends the name of a session's worktree."""
COMMAND = "loop clean"
BY_OURSELVES = "<loop@localhost>"
"""Who committed what an older loop made."""
BRANCH = "--format=%(refname:short)%00%(authoremail)%00%(contents:trailers:key=" + MADE_WITH + ",valueonly)%00"


@dataclass(frozen=True)
class Found:
    """Something that loop made, and where it stands."""

    kind: Literal["worktree", "branch", "session"]
    name: str
    """What it is called on the command line."""
    path: str
    state: State
    why: str
    remove: Callable[[], object]
    loses: str = ""
    """What goes with it and is nowhere else; empty for nothing."""


def folder() -> Path:
    """Where worktrees are."""
    return state_folder() / "worktrees"


def worktrees(sessions_folder: Path) -> Iterator[Found]:
    """All worktrees; `sessions_folder`: where sessions are looked for when one does not say whose it is."""
    for kept in leftover.every(folder()):
        state, why = _state(kept, sessions_folder)
        loses = "" if state in ("in use", "waits") else _edits(kept)
        yield Found("worktree", kept.root.name, str(kept.root), state, why, kept.remove, loses)


def left_over(sessions_folder: Path) -> list[Found]:
    """Worktrees that nobody needs any more."""
    return [one for one in worktrees(sessions_folder) if one.state == "left over"]


def _edits(kept: KeptWorktree) -> str:
    """Uncommitted edits in words."""
    edits = kept.edits()
    if edits is None:
        return "edits: not known" if any(kept.root.iterdir()) else ""
    files, lines = len(edits), sum(edits.values())
    return f"edits: {files} file{'s' * (files != 1)}, {lines} line{'s' * (lines != 1)}" if files else ""


def _state(kept: KeptWorktree, sessions_folder: Path) -> tuple[State, str]:
    parts = kept.root.name.split("-")
    if parts[0] == "bisect" and len(parts) > 1 and parts[1].isdigit():
        alive = psutil.pid_exists(int(parts[1]))
        return ("in use", f"process {parts[1]} bisects") if alive else ("left over", "its bisection was killed")
    guess = sessions_folder / kept.root.name[: -GROUND - 1]
    owner = kept.owner or (guess if (guess / HEAD).is_file() else None)
    if owner is None:
        return "unknown", f"it does not say whose it is, and no session in {sessions_folder} has its name"
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


def branches(here: Project) -> Iterator[Found]:
    """Branches of kept changes. One whose commits are nowhere else is `unknown`: it goes by its name alone."""
    top = top_of(here.target)
    if top is None:
        return
    merged = git(top, "for-each-ref", "--merged=HEAD", "--format=%(refname:short)", "refs/heads/loop/").split()
    for line in git(top, "for-each-ref", BRANCH, "refs/heads/loop/").split("\0\n"):
        name, email, trailer = (*line.split("\0"), "", "")[:3]
        if not (trailer.strip() or email == BY_OURSELVES):
            continue
        state, why = _of_session(SessionFolder(here.sessions / name.removeprefix("loop/")))
        remove = partial(git, top, "branch", "--quiet", "-D", name)
        if state == "left over" and name not in merged:
            count = git(top, "rev-list", "--count", name, "^HEAD").strip()
            yield Found("branch", name, str(top), "unknown", "it is not merged", remove, f"commits: {count}")
        else:
            yield Found("branch", name, str(top), state, "it is merged" if state == "left over" else why, remove)


def old_sessions(here: Project, before: datetime.datetime, *, resumable: bool) -> Iterator[Found]:
    """Sessions that began before a time; not the last of a target and device, nor one with a known-good build."""
    needed = past_changes.needed(here.sessions)
    for session in sessions.every(here.sessions):
        try:
            began = session.head().started
        except LoopError:
            continue
        if began >= before or session.id in needed:
            continue
        state, why = _of_session(session)
        if resumable and state == "waits":
            state = "left over"
        why = f"it began on {began:%Y-%m-%d}" if state == "left over" else why
        yield Found("session", session.id, str(session.path), state, why, partial(shutil.rmtree, session.path))


@dataclass(frozen=True)
class CleanRequest:
    """What is asked for."""

    names: tuple[str, ...] = ()
    """Those to remove; none: all that are left over."""
    older_than: float | None = None
    """Days, of sessions; None: sessions stay."""
    resumable: bool = False
    discard_edits: bool = False
    yes: bool = False
    target: Path | None = None
    json: bool = False


def clean(request: CleanRequest, screen: Screen) -> int:
    """List what is there, ask, and take away what nobody needs; 1 where something stays for what it would lose."""
    here = project(request.target, Path.cwd())
    found = [*worktrees(here.sessions), *branches(here), *_sessions(request, here)]
    chosen = _chosen(request, found)
    stay = [one for one in chosen if one.loses and not request.discard_edits]
    go = [one for one in chosen if one not in stay]
    agreed = request.yes
    if not request.json:
        _list(found, screen)
        agreed = agreed or (bool(go) and screen.confirm(f"Take away {_counted(go)}?"))
    gone = go if agreed else []
    for one in gone:
        one.remove()
    if request.json:
        rows = tuple(_fields(one, removed=one in gone) for one in found)
        screen.data(to_json(LeftBehind(found=rows)))
    else:
        _tell(go, stay, screen, agreed=agreed)
    return ExitCode.GATE_FAILED if stay and agreed else ExitCode.OK


def _sessions(request: CleanRequest, here: Project) -> Iterable[Found]:
    if request.older_than is None:
        return ()
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=request.older_than)
    return old_sessions(here, before, resumable=request.resumable)


def _chosen(request: CleanRequest, found: Sequence[Found]) -> list[Found]:
    """What would be removed. Raises LoopError for a name that is not there, or is in use."""
    by_name = {one.name: one for one in found}
    for name in request.names:
        if name not in by_name:
            raise UsageError(f"loop made nothing that is called {name!r}", hint=COMMAND)
        if by_name[name].state == "in use":
            raise UsageError(f"{name} is in use: {by_name[name].why}", hint="wait for it to end")
        if by_name[name].state == "waits":
            raise UsageError(f"a session waits for {name}", hint=f"end it: {by_name[name].why} --decline")
    if request.names:
        return [by_name[name] for name in dict.fromkeys(request.names)]
    return [one for one in found if one.state == "left over"]


def _fields(one: Found, *, removed: bool) -> "LeftBehindItem":
    names = ("kind", "name", "path", "state", "why", "loses")
    return LeftBehindItem(**{name: getattr(one, name) for name in names}, removed=removed)


class LeftBehindItem(Model):
    """Something that loop made."""

    kind: str
    """A worktree, a branch or a session."""
    name: str
    """What it is called."""
    path: str
    """Where it is."""
    state: str
    """`left over` can be removed; `waits` and others are needed."""
    why: str
    """Why it is in that state."""
    loses: str
    """What would be lost with it; empty for nothing."""
    removed: bool
    """Whether it was removed now."""


class LeftBehind(Printed):
    """What loop left behind."""

    found: tuple[LeftBehindItem, ...]
    """All of it."""


class CacheCleaned(Printed):
    """What was removed from the cache, or would be."""

    folder: str
    """Where it is."""
    entries: int
    """How many."""
    bytes: int
    """Their size."""
    removed: bool
    """Whether they were removed; without `--yes` they are not."""
    parts: dict[str, int]
    """Bytes of all that is there, by what it is."""


Cleaned = LeftBehind | CacheCleaned
"""What `loop clean` prints; the second with `--cache`."""


def _list(found: Sequence[Found], screen: Screen) -> None:
    if found:
        rows = [(one.kind, one.name, one.state, one.loses or "-", one.why) for one in found]
        screen.table(("what", "name", "", "would lose", "why"), rows)


def _counted(items: Sequence[Found]) -> str:
    """`2 worktrees, 1 branch`."""
    kinds = [one.kind for one in items]
    plural = {"branch": "branches"}
    counts = ((kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return ", ".join(f"{n} {kind if n == 1 else plural.get(kind, f'{kind}s')}" for n, kind in counts)


def _tell(go: Sequence[Found], stay: Sequence[Found], screen: Screen, *, agreed: bool) -> None:
    if not go and not stay:
        screen.say("nothing is left over")
    elif go:
        screen.say(
            f"taken away: {_counted(go)}" if agreed else f"nothing was taken away; to do it: {COMMAND} --yes"
        )
    for one in stay:
        screen.say(f"{one.name} stays: {one.loses}, in {one.path}")
    if stay:
        names = " ".join(one.name for one in stay)
        screen.say(f"look at them first; to lose them: {COMMAND} --discard-edits {names}")


DAY_S = 86_400.0
WHAT = {
    "builds": "compiled kernels",
    "index": "index of sessions",
    "tasks": "targets made of tasks in other formats",
}


@dataclass(frozen=True)
class Entry:
    """One thing in the cache: a build, or an index."""

    part: str
    path: Path
    bytes: int
    days: float
    """Since it was written."""


def entries(cache: Path) -> Iterator[Entry]:
    """All of them; what a session moves or removes meanwhile is left out."""
    for part in WHAT:
        for path in sorted((cache / part).glob("*")) if (cache / part).is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                files = [one for one in (path, *path.rglob("*")) if one.is_file()]
                stats = [one.stat() for one in files]
                newest = max((one.st_mtime for one in stats), default=path.stat().st_mtime)
                yield Entry(part, path, sum(one.st_size for one in stats), (time.time() - newest) / DAY_S)


def clean_cache(older_than: float, yes: bool, screen: Screen, *, as_json: bool) -> int:
    """Remove what was written so many days ago or more; asks first."""
    cache = cache_folder()
    found = list(entries(cache))
    chosen = [one for one in found if one.days >= older_than and one.path.name != QUESTIONS]
    parts = {what: sum(one.bytes for one in found if one.part == part) for part, what in WHAT.items()}
    if not as_json:
        screen.table(("what", "size"), [(what, _megabytes(size)) for what, size in parts.items()])
    size = sum(one.bytes for one in chosen)
    said = f"{len(chosen)} entries, {_megabytes(size)}"
    agreed = yes or (bool(chosen) and not as_json and screen.confirm(f"Remove {said} from {cache}?"))
    for one in chosen if agreed else ():
        _remove(one, cache)
    if as_json:
        answer = CacheCleaned(folder=str(cache), entries=len(chosen), bytes=size, removed=agreed, parts=parts)
        screen.data(to_json(answer))
    elif not chosen:
        screen.say("nothing to remove")
    else:
        screen.say(
            f"removed: {said}" if agreed else f"nothing was removed of {said}; to do it: loop clean --cache --yes"
        )
    return ExitCode.OK


def _remove(one: Entry, cache: Path) -> None:
    """An entry, and for a build what says how it was made. What somebody else has removed meanwhile is gone."""
    if not one.path.is_dir():
        one.path.unlink(missing_ok=True)
        return
    for question in (cache / "builds" / QUESTIONS).glob(f"*/{one.path.name.partition('-')[0]}.json"):
        question.unlink(missing_ok=True)
    shutil.rmtree(one.path, ignore_errors=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
