"""`loop clean`: what nobody needs any more, and what can be made again; both ask first."""

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import psutil
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

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
BRANCH = "--format=%(refname:short)%00%(contents:trailers:key=" + MADE_WITH + ",valueonly)%00"


class LeftItem(Model):
    """Something that loop made, and where it stands."""

    kind: Literal["worktree", "branch", "session"]
    """What it is."""
    name: str
    """What it is called."""
    path: str
    """Where it is."""
    state: State
    """`left over` can be removed; `waits` and others are needed."""
    why: str
    """Why it is in that state."""
    loses: str = ""
    """What would be lost with it; empty for nothing."""
    removed: bool = False
    """Whether it was removed now."""
    remove: SkipJsonSchema[Callable[[], object]] = Field(exclude=True)
    """Removes it."""


class LeftBehind(Printed):
    """What loop left behind."""

    found: tuple[LeftItem, ...]
    """All of it."""


def folder() -> Path:
    """Where worktrees are."""
    return state_folder() / "worktrees"


def worktrees(sessions_folder: Path) -> Iterator[LeftItem]:
    """All worktrees; `sessions_folder`: where sessions are looked for when one does not say whose it is."""
    for tree in leftover.every(folder()):
        state, why = _state(tree, sessions_folder)
        loses = "" if state in ("in use", "waits") else _edits(tree)
        yield LeftItem(
            kind="worktree",
            name=tree.root.name,
            path=str(tree.root),
            state=state,
            why=why,
            loses=loses,
            remove=tree.remove,
        )


def left_over(sessions_folder: Path) -> list[LeftItem]:
    """Worktrees that nobody needs any more."""
    return [item for item in worktrees(sessions_folder) if item.state == "left over"]


def _edits(tree: KeptWorktree) -> str:
    """Uncommitted edits in words."""
    edits = tree.edits()
    if edits is None:
        return "edits: not known" if any(tree.root.iterdir()) else ""
    files, lines = len(edits), sum(edits.values())
    return f"edits: {files} file{'s' * (files != 1)}, {lines} line{'s' * (lines != 1)}" if files else ""


def _state(tree: KeptWorktree, sessions_folder: Path) -> tuple[State, str]:
    parts = tree.root.name.split("-")
    if parts[0] == "bisect" and len(parts) > 1 and parts[1].isdigit():
        alive = psutil.pid_exists(int(parts[1]))
        return ("in use", f"process {parts[1]} bisects") if alive else ("left over", "its bisection was killed")
    guess = sessions_folder / tree.root.name[: -GROUND - 1]
    owner = tree.owner or (guess if (guess / HEAD).is_file() else None)
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


def branches(here: Project) -> Iterator[LeftItem]:
    """Branches of kept changes. One whose commits are nowhere else is `unknown`: it goes by its name alone."""
    top = top_of(here.target)
    if top is None:
        return
    merged = git(top, "for-each-ref", "--merged=HEAD", "--format=%(refname:short)", "refs/heads/loop/").split()
    for line in git(top, "for-each-ref", BRANCH, "refs/heads/loop/").split("\0\n"):
        name, _, trailer = line.partition("\0")
        if not trailer.strip("\0\n "):
            continue
        state, why = _of_session(SessionFolder(here.sessions / name.removeprefix("loop/")))
        remove = partial(git, top, "branch", "--quiet", "-D", name)
        if state == "left over" and name not in merged:
            loses = f"commits: {git(top, 'rev-list', '--count', name, '^HEAD').strip()}"
            state, why = "unknown", "it is not merged"
        else:
            loses, why = "", "it is merged" if state == "left over" else why
        yield LeftItem(kind="branch", name=name, path=str(top), state=state, why=why, loses=loses, remove=remove)


def old_sessions(here: Project, before: datetime.datetime, *, resumable: bool) -> Iterator[LeftItem]:
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
        remove = partial(shutil.rmtree, session.path)
        yield LeftItem(
            kind="session", name=session.id, path=str(session.path), state=state, why=why, remove=remove
        )


def clean(
    names: Sequence[str] = (),
    older_than: float | None = None,
    *,
    resumable: bool = False,
    discard_edits: bool = False,
    cache: bool = False,
    yes: bool = False,
    target: Path | None = None,
    screen: Screen,
    as_json: bool = False,
) -> int:
    """List what is there, ask, and take away what nobody needs; 1 where something stays for what it would lose.

    `names`: only these; none: all that is left over. `older_than`: days, of sessions, or of what is in the cache.
    """
    if cache:
        return clean_cache(older_than or 0.0, screen, yes=yes, as_json=as_json)
    here = project(target, Path.cwd())
    every = [*worktrees(here.sessions), *branches(here)]
    if older_than is not None:
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=older_than)
        every += old_sessions(here, before, resumable=resumable)
    chosen = _chosen(names, every)
    stay = [item for item in chosen if item.loses and not discard_edits]
    go = [item for item in chosen if item not in stay]
    agreed = yes
    if not as_json:
        if every:
            cells = [(item.kind, item.name, item.state, item.loses or "-", item.why) for item in every]
            screen.table(("what", "name", "", "would lose", "why"), cells)
        agreed = agreed or (bool(go) and screen.confirm(f"Take away {_counted(go)}?"))
    for item in go if agreed else ():
        item.remove()
    if as_json:
        rows = tuple(item.model_copy(update={"removed": agreed and item in go}) for item in every)
        screen.data(to_json(LeftBehind(found=rows)))
    else:
        _tell(go, stay, screen, agreed=agreed)
    return ExitCode.GATE_FAILED if stay and agreed else ExitCode.OK


def _chosen(names: Sequence[str], every: Sequence[LeftItem]) -> list[LeftItem]:
    """What would be removed. Raises LoopError for a name that is not there, or is in use."""
    by_name = {item.name: item for item in every}
    for name in names:
        if name not in by_name:
            raise UsageError(f"loop made nothing that is called {name!r}", hint=COMMAND)
        if by_name[name].state == "in use":
            raise UsageError(f"{name} is in use: {by_name[name].why}", hint="wait for it to end")
        if by_name[name].state == "waits":
            raise UsageError(f"a session waits for {name}", hint=f"end it: {by_name[name].why} --decline")
    if names:
        return [by_name[name] for name in dict.fromkeys(names)]
    return [item for item in every if item.state == "left over"]


def _counted(items: Sequence[LeftItem]) -> str:
    """`2 worktrees, 1 branch`."""
    kinds = [item.kind for item in items]
    plural = {"branch": "branches"}
    counts = ((kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    return ", ".join(f"{n} {kind if n == 1 else plural.get(kind, f'{kind}s')}" for n, kind in counts)


def _tell(go: Sequence[LeftItem], stay: Sequence[LeftItem], screen: Screen, *, agreed: bool) -> None:
    """What was taken away, what stays, and how to have it otherwise."""
    if not go and not stay:
        screen.say("nothing is left over")
    elif go and agreed:
        screen.say(f"taken away: {_counted(go)}")
    elif go:
        screen.say(f"nothing was taken away; to do it: {COMMAND} --yes")
    for item in stay:
        screen.say(f"{item.name} stays: {item.loses}, in {item.path}")
    if stay:
        names = " ".join(item.name for item in stay)
        screen.say(f"look at them first; to lose them: {COMMAND} --discard-edits {names}")


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
DAY_S = 86_400.0
WHAT = {
    "builds": "compiled kernels",
    "index": "index of sessions",
    "tasks": "targets made of tasks in other formats",
}


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache: a build, or an index."""

    part: str
    path: Path
    bytes: int
    days: float
    """Since it was written."""


def entries(cache: Path) -> Iterator[CacheEntry]:
    """All of them; what a session moves or removes meanwhile is left out."""
    for part in WHAT:
        for path in sorted((cache / part).glob("*")) if (cache / part).is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                stats = [file.stat() for file in (path, *path.rglob("*")) if file.is_file()]
                newest = max((stat.st_mtime for stat in stats), default=path.stat().st_mtime)
                yield CacheEntry(part, path, sum(stat.st_size for stat in stats), (time.time() - newest) / DAY_S)


def clean_cache(days: float, screen: Screen, *, yes: bool, as_json: bool) -> int:
    """Remove what was written so many days ago or more; asks first."""
    cache = cache_folder()
    every = list(entries(cache))
    chosen = [entry for entry in every if entry.days >= days and entry.path.name != QUESTIONS]
    parts = {what: sum(entry.bytes for entry in every if entry.part == part) for part, what in WHAT.items()}
    if not as_json:
        screen.table(("what", "size"), [(what, _megabytes(size)) for what, size in parts.items()])
    size = sum(entry.bytes for entry in chosen)
    text = f"{len(chosen)} entries, {_megabytes(size)}"
    agreed = yes or (bool(chosen) and not as_json and screen.confirm(f"Remove {text} from {cache}?"))
    for entry in chosen if agreed else ():
        _remove(entry, cache)
    if as_json:
        answer = CacheCleaned(folder=str(cache), entries=len(chosen), bytes=size, removed=agreed, parts=parts)
        screen.data(to_json(answer))
    elif not chosen:
        screen.say("nothing to remove")
    elif agreed:
        screen.say(f"removed: {text}")
    else:
        screen.say(f"nothing was removed of {text}; to do it: loop clean --cache --yes")
    return ExitCode.OK


def _remove(entry: CacheEntry, cache: Path) -> None:
    """An entry, and for a build what says how it was made. What somebody else has removed meanwhile is gone."""
    if not entry.path.is_dir():
        entry.path.unlink(missing_ok=True)
        return
    for question in (cache / "builds" / QUESTIONS).glob(f"*/{entry.path.name.partition('-')[0]}.json"):
        question.unlink(missing_ok=True)
    shutil.rmtree(entry.path, ignore_errors=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
