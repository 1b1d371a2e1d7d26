"""`loop clean`: lists and removes left-over worktrees, or caches, after asking."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import psutil

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.base.locks import is_locked
from loop.base.places import cache_folder, state_folder
from loop.model.base import Model, Printed
from loop.model.record import RESUMABLE
from loop.report import format as say
from loop.report.screen import Screen
from loop.repository.worktree import Worktree, list_worktrees
from loop.store.sessions import HEAD, LOCK, SessionFolder

State = Literal["in use", "waits", "left over", "unknown"]
# Folder below the cache folder to what it holds.
CACHE_FOLDERS = {"builds": "compiled kernels", "index": "index of sessions"}
CACHE_FOLDERS["tasks"] = "targets made of tasks in other formats"


class LeftItem(Model):
    """A worktree or cache folder that loop made."""

    kind: Literal["worktree", "cache"]
    name: str
    path: str
    state: State
    """`left over`: can be removed. `waits`: a session needs it. `in use`: a process runs there."""
    why: str
    loses: str = ""
    """Uncommitted edits that removal would destroy, in words; empty for none."""
    removed: bool = False


class LeftBehind(Printed):
    """What `loop clean --json` prints."""

    found: tuple[LeftItem, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        rows = []
        for item in self.found:
            rows.append((item.kind, item.name, item.state, item.loses or "-", item.why))
        screen.table(("what", "name", "", "would lose", "why"), rows)


Removable = tuple[LeftItem, Callable[[], object]]  # An item, and the function that removes it.


def removable_worktrees() -> Iterator[Removable]:
    """Yield all worktrees that loop made, each with its state and the function that removes it."""
    for tree in list_worktrees(state_folder() / "worktrees"):
        loses = ""
        state, why = _worktree_state(tree)
        if state not in ("in use", "waits"):  # One that is needed stays anyway.
            try:
                if line_counts := tree.changed_lines():
                    lines = say.count(sum(line_counts.values()), "line")
                    loses = f"edits: {say.count(len(line_counts), 'file')}, {lines}"
            except LoopError:  # Git cannot tell, as in an incomplete worktree.
                loses = "edits: not known" if any(tree.root.iterdir()) else ""
        path, name = str(tree.root), tree.root.name
        item = LeftItem(kind="worktree", name=name, path=path, state=state, why=why, loses=loses)
        yield item, tree.remove


def _worktree_state(tree: Worktree) -> tuple[State, str]:
    """The state of a worktree, and why. Its owner is a session, or a bisection (`bisect-PID-`)."""
    if bisection := re.match(r"bisect-(\d+)\b", tree.root.name):
        if psutil.pid_exists(int(bisection[1])):
            return "in use", f"process {bisection[1]} bisects"
        return "left over", "its bisection was killed"
    if tree.owner is None:
        return "unknown", "it does not say whose it is"
    session = SessionFolder(tree.owner)
    if not (session.path / HEAD).is_file():
        return "left over", f"its session is gone: {session.path}"
    if is_locked(session.path / LOCK):
        return "in use", f"{session.id} runs"
    try:
        record = session.record()
        if record is None or record.status in RESUMABLE:
            return "waits", session.head().resume_command  # Printed as what to do.
    except LoopError as error:
        return "unknown", error.message
    return "left over", f"{session.id} has ended"


def removable_caches() -> Iterator[Removable]:
    """Yield the cache's folders, each with the function that removes it. All can be made again."""
    for name, content in CACHE_FOLDERS.items():
        path = cache_folder() / name
        if path.is_dir():
            size_bytes = sum(os.lstat(file).st_size for file in path.rglob("*") if file.is_file())
            reason = f"{content}: {size_bytes / 1e6:,.1f} MB"
            item = LeftItem(kind="cache", name=name, path=str(path), state="left over", why=reason)
            yield item, partial(shutil.rmtree, path, ignore_errors=True)


def clean(
    names: Sequence[str], screen: Screen, *, as_json: bool, cache: bool = False, yes: bool = False
) -> int:
    """List worktrees (or caches), ask, and remove the left-over ones. `yes`: do not ask; `as_json`:
    neither, and without `yes` nothing is removed. `names`: only these, with their edits; empty: all
    without edits. Returns 1 if some stay for edits. UsageError for an unknown or needed name."""
    removables = list(removable_caches() if cache else removable_worktrees())
    items = {item.name: item for item, _ in removables}
    for name in names:
        if name not in items:
            raise UsageError(f"loop made nothing that is called {name!r}", hint="loop clean")
        why = items[name].why
        if items[name].state == "in use":
            raise UsageError(f"{name} is in use: {why}", hint="wait for it to end")
        if items[name].state == "waits":
            raise UsageError(f"a session waits for {name}", hint=f"end it: {why} --decline")
    left_over = [item for item in items.values() if item.state == "left over"]
    with_edits = [item for item in left_over if item.loses and not names]
    chosen = [item for item in left_over if not item.loses]
    if names:
        chosen = [items[name] for name in dict.fromkeys(names)]
    count, is_agreed = f"{'cache' if cache else 'worktree'}: {len(chosen)}", yes
    if not as_json and items:
        LeftBehind(found=tuple(items.values())).show(screen)
        is_agreed = yes or (bool(chosen) and screen.confirm(f"Remove {count}?"))
    for item, remove in removables:
        if is_agreed and item in chosen:
            remove()
    if as_json:
        rows = []
        for item in items.values():
            rows.append(item.model_copy(update={"removed": is_agreed and item in chosen}))
        screen.data(to_json(LeftBehind(found=tuple(rows))))
    elif chosen:
        screen.say(f"removed: {count}" if is_agreed else "nothing was removed; to do it: add --yes")
    elif not with_edits:
        screen.say("nothing is left over")
    if with_edits and not as_json:
        for item in with_edits:
            screen.say(f"{item.name} stays: {item.loses}, in {item.path}")
        edited = " ".join(item.name for item in with_edits)
        screen.say(f"look at them first; to lose them: loop clean {edited}")
    return ExitCode.GATE_FAILED if with_edits and is_agreed else ExitCode.OK
