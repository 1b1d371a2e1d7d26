"""A change that a waiting session asks for: its brief, and edits in the session's own worktree."""

from pathlib import Path
from typing import Literal

from loop.base.documents import to_json, write_atomic
from loop.base.errors import UsageError
from loop.base.locks import held
from loop.base.places import project
from loop.base.screen import Screen
from loop.model.base import Model
from loop.model.change import Brief, BriefOutput
from loop.model.output import by_run
from loop.optimize.edits import LARGEST, may_change, page_of
from loop.repository import worktree
from loop.session.closing import brief_page
from loop.session.command import find
from loop.session.run import tree_of
from loop.store.sessions import CHANGES, LOCK, SessionFolder


class Asked(Model):
    """What a waiting session asks for."""

    schema_version: Literal[1] = 1
    """Number of this schema."""
    session: str
    """The session."""
    brief: Brief
    """The change, and how it is judged."""
    sources: dict[str, str]
    """What the files that may change hold now."""
    page: str
    """The brief as a page, in Markdown."""
    next: str
    """What to do now."""


class Edited(Model):
    """A file of a change was written."""

    schema_version: Literal[1] = 1
    """Number of this schema."""
    session: str
    """The session."""
    file: str
    """The file."""
    changed: bool
    """Whether it now holds something else than before."""
    next: str
    """What to do now."""


def waiting_brief(session: str, target: Path | None) -> tuple[SessionFolder, Brief]:
    """The brief that a session waits on. Raises UsageError where it waits for none."""
    folder = find(project(target, Path.cwd()).sessions, session)
    if held(folder.path / LOCK):
        raise UsageError(f"{folder.id} is at work", hint="job_wait, then read the brief again")
    finished = folder.finished()
    page = brief_page(folder, finished)
    brief = by_run(finished, BriefOutput)[-1][1].brief if page else None
    if brief is None:
        raise UsageError(
            f"{folder.id} waits for no change",
            hint="run_session with plan=optimize begins a session that asks for one; sessions_list shows all",
        )
    return folder, brief


def show_brief(session: str, target: Path | None, screen: Screen, *, as_json: bool = True) -> int:
    """Print what a session asks for, with the files as they are now."""
    folder, brief = waiting_brief(session, target)
    sources = {name: _text(Path(brief.folder) / name) for name in brief.files}
    told = Asked(
        session=folder.id,
        brief=brief,
        sources=sources,
        page=_text(page_of(folder.path / CHANGES, brief)),
        next=f"change_edit, kernels_check with target={brief.folder}, then {_resume(folder, target)}; "
        "with decline=true the session ends without a further change",
    )
    screen.data(to_json(told))
    return 0


def edit(file: str, text: str, session: str, target: Path | None, screen: Screen, *, as_json: bool = True) -> int:
    """Write one file of the change. Raises UsageError for one that may not change."""
    folder, brief = waiting_brief(session, target)
    tree = worktree.find(project(target, Path.cwd()).target, tree_of(folder.head()))
    if tree is None:
        raise UsageError(f"{brief.folder} is gone", hint="run_session with plan=optimize begins anew")
    top = tree.target.resolve()
    path = top / file
    name = str(Path(file))
    if not may_change(name, brief.files, tree.committed()):
        shared = f"; others are built from it: {', '.join(brief.shared[name])}" if name in brief.shared else ""
        raise UsageError(f"{file} may not change{shared}", hint=f"these may: {', '.join(brief.files)}")
    if path.is_symlink() or path.parent.resolve() != path.parent or len(text.encode()) > LARGEST:
        raise UsageError(f"{file} is no plain file of a usual size", hint=f"these may change: {brief.files}")
    changed = not path.is_file() or path.read_text(errors="replace") != text
    write_atomic(path, text)
    told = Edited(
        session=folder.id,
        file=file,
        changed=changed,
        next=f"kernels_check with target={brief.folder} and variants=[{brief.variant}], "
        f"then {_resume(folder, target)}",
    )
    screen.data(to_json(told))
    return 0


def _resume(folder: SessionFolder, target: Path | None) -> str:
    return f"run_session with resume={folder.id}" + (f" and target={target}" if target else "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
