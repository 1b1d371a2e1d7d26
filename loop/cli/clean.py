"""`loop clean`: lists and removes left-over worktrees, or caches, after asking."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import psutil

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.locks import is_locked
from loop.base.places import cache_folder, state_folder
from loop.base.screen import Screen
from loop.model.base import Model, Printed
from loop.model.record import RESUMABLE
from loop.repository import worktree
from loop.repository.worktree import KeptWorktree
from loop.store.sessions import HEAD, LOCK, SessionFolder

State = Literal["in use", "waits", "left over", "unknown"]
CACHED = {
    "builds": "compiled kernels",
    "index": "index of sessions",
    "tasks": "targets made of tasks in other formats",
}


class LeftItem(Model):
    """A worktree or cache folder that loop made."""

    kind: Literal["worktree", "cache"]
    name: str
    path: str
    state: State
    """`left over`: can be removed. `waits`: a session needs it. `in use`: a process runs there."""
    why: str
    loses: str = ""
    """Uncommitted edits that removal would destroy; empty for none."""
    removed: bool = False


class LeftBehind(Printed):
    """What `loop clean --json` prints."""

    found: tuple[LeftItem, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        cells = [(item.kind, item.name, item.state, item.loses or "-", item.why) for item in self.found]
        screen.table(("what", "name", "", "would lose", "why"), cells)


Removable = tuple[LeftItem, Callable[[], object]]
"""An item, and the function that removes it."""


def worktrees() -> Iterator[Removable]:
    """All worktrees that loop made."""
    for tree in worktree.every_worktree(state_folder() / "worktrees"):
        (state, why), loses = _state(tree), ""
        edits = {} if state in ("in use", "waits") else tree.edits()
        if edits is None:
            loses = "edits: not known" if any(tree.root.iterdir()) else ""
        elif edits:
            files, lines = len(edits), sum(edits.values())
            loses = f"edits: {files} file{'s' * (files != 1)}, {lines} line{'s' * (lines != 1)}"
        name, path = tree.root.name, str(tree.root)
        yield LeftItem(kind="worktree", name=name, path=path, state=state, why=why, loses=loses), tree.remove


def _state(tree: KeptWorktree) -> tuple[State, str]:
    """The state of a worktree, from the process or session that made it; and the reason."""
    parts = tree.root.name.split("-")
    if parts[0] == "bisect" and len(parts) > 1 and parts[1].isdigit():
        alive = psutil.pid_exists(int(parts[1]))
        return ("in use", f"process {parts[1]} bisects") if alive else ("left over", "its bisection was killed")
    if tree.owner is None:
        return "unknown", "it does not say whose it is"
    session = SessionFolder(tree.owner)
    if not (session.path / HEAD).is_file():
        return "left over", f"its session is gone: {session.path}"
    if is_locked(session.path / LOCK):
        return "in use", f"{session.id} runs"
    try:
        record = session.record()
        if (record.status if record else None) in (None, *RESUMABLE):
            return "waits", session.head().resume_command
    except LoopError as error:
        return "unknown", error.message
    return "left over", f"{session.id} has ended"


def cached_items() -> Iterator[Removable]:
    """The folders of the cache, with their sizes. All can be made again."""
    for part, what in CACHED.items():
        path = cache_folder() / part
        if path.is_dir():
            size = sum(os.lstat(file).st_size for file in path.rglob("*") if file.is_file())
            why = f"{what}: {size / 1e6:,.1f} MB"
            item = LeftItem(kind="cache", name=part, path=str(path), state="left over", why=why)
            yield item, partial(shutil.rmtree, path, ignore_errors=True)


def clean(
    names: Sequence[str] = (), *, cache: bool = False, yes: bool = False, screen: Screen, as_json: bool = False
) -> int:
    """List worktrees (or caches), ask, and remove the left-over ones. Returns the exit code.

    `names`: remove only these, with their edits; empty: all left over without edits. The code is 1 if
    some stay because of edits. Raises UsageError for an unknown or needed name.
    """
    every = list(cached_items() if cache else worktrees())
    by_name = {item.name: item for item, _ in every}
    for name in names:
        if name not in by_name:
            raise UsageError(f"loop made nothing that is called {name!r}", hint="loop clean")
        if by_name[name].state == "in use":
            raise UsageError(f"{name} is in use: {by_name[name].why}", hint="wait for it to end")
        if by_name[name].state == "waits":
            raise UsageError(f"a session waits for {name}", hint=f"end it: {by_name[name].why} --decline")
    left = [item for item in by_name.values() if item.state == "left over"]
    go = [by_name[name] for name in dict.fromkeys(names)] if names else [item for item in left if not item.loses]
    stay = [] if names else [item for item in left if item.loses]
    counted, agreed = f"{'cache' if cache else 'worktree'}: {len(go)}", yes
    if not as_json and by_name:
        LeftBehind(found=tuple(by_name.values())).show(screen)
        agreed = agreed or (bool(go) and screen.confirm(f"Remove {counted}?"))
    for item, remove in every:
        if agreed and item in go:
            remove()
    if as_json:
        rows = tuple(item.model_copy(update={"removed": agreed and item in go}) for item in by_name.values())
        screen.data(to_json(LeftBehind(found=rows)))
    elif go:
        screen.say(f"removed: {counted}" if agreed else "nothing was removed; to do it: add --yes")
    elif not stay:
        screen.say("nothing is left over")
    if stay and not as_json:
        for item in stay:
            screen.say(f"{item.name} stays: {item.loses}, in {item.path}")
        screen.say(f"look at them first; to lose them: loop clean {' '.join(item.name for item in stay)}")
    return ExitCode.GATE_FAILED if stay and agreed else ExitCode.OK
