"""A change that a waiting session asks for: its brief, and edits in the session's own worktree."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.base.documents import to_json, write_atomic
from loop.base.errors import UsageError
from loop.base.locks import held
from loop.base.places import project
from loop.base.screen import Screen
from loop.cli.options import Target
from loop.jobs.folder import read_text
from loop.library import trust
from loop.model.change import Brief, BriefOutput
from loop.model.output import by_run
from loop.optimize.edits import LARGEST, may_change, page_of
from loop.repository import worktree
from loop.session.closing import brief_page
from loop.session.command import find
from loop.session.run import tree_of
from loop.store.sessions import CHANGES, LOCK, SessionFolder

SessionId = Annotated[str, Argument(help="An id of a session, its beginning, or last.")]


@dataclass(frozen=True)
class WaitingChange:
    """A session that waits for a change, and where that is made: its journal is not believed on paths."""

    folder: SessionFolder
    brief: Brief
    top: Path
    """The target's folder in the session's worktree."""
    committed: frozenset[str]
    """Files that were there before the change."""

    def file(self, name: str) -> Path:
        """A file of the change. Raises UsageError for one that lies elsewhere, through a link too."""
        path = self.top / name
        if path.resolve() != path or not path.is_relative_to(self.top):
            hint = f"these may change: {', '.join(self.brief.files)}"
            raise UsageError(f"{name} is no plain file in {self.top}", hint)
        return path

    def judged(self, target: Path | None) -> str:
        """What has it judged."""
        return f"run_session with resume={self.folder.id}" + (f" and target={target}" if target else "")


def waiting(session: str, target: Path | None) -> WaitingChange:
    """The session that waits, and what for. Raises Untrusted, and UsageError where it waits for nothing."""
    here = project(target, Path.cwd())
    folder = find(here.sessions, session)
    if not trust.is_trusted(here):
        raise trust.refusal(here)
    if held(folder.path / LOCK):
        raise UsageError(f"{folder.id} is at work", hint="job_wait, then read the brief again")
    finished = folder.finished()
    brief = by_run(finished, BriefOutput)[-1][1].brief if brief_page(folder, finished) else None
    if brief is None:
        hint = "run_session with plan=optimize begins a session that asks for one; sessions_list shows all"
        raise UsageError(f"{folder.id} waits for no change", hint)
    tree = worktree.find(here.target, tree_of(folder.head(), folder))
    if tree is None:
        raise UsageError(f"the worktree of {folder.id} is gone", hint="run_session with plan=optimize begins anew")
    return WaitingChange(folder, brief, tree.target.resolve(), frozenset(tree.committed()))


def change_brief(session: SessionId = "last", target: Target = None, *, screen: Screen) -> None:
    """Read what a waiting session asks for: the brief, how changes are judged, and the files that may change."""
    change = waiting(session, target)
    answer = {
        "schema_version": 1,
        "session": change.folder.id,
        "brief": change.brief,
        "sources": {name: read_text(change.file(name)) for name in change.brief.files},
        "page": read_text(page_of(change.folder.path / CHANGES, change.brief)),
        "next": f"change_edit, kernels_check with target={change.top}, then {change.judged(target)}; "
        "with decline=true the session ends without a further change",
    }
    screen.data(to_json(answer))


def change_edit(
    file: Annotated[str, Argument(help="A file that the brief lets you change, or a new one beside it.")],
    text: Annotated[str, Argument(help="All that it is to hold.")],
    session: Annotated[str, Option(help="An id of a session, its beginning, or last.")] = "last",
    target: Target = None,
    *,
    screen: Screen,
) -> None:
    """Write one file of the change that a waiting session asks for, in the session's own worktree.

    `kernels_check` with the folder as target says in seconds whether it is right. `run_session` with
    `resume` has it judged.
    """
    change = waiting(session, target)
    brief, path, name = change.brief, change.file(file), str(Path(file))
    if not may_change(name, brief.files, change.committed):
        shared = f"; others are built from it: {', '.join(brief.shared[name])}" if name in brief.shared else ""
        raise UsageError(f"{file} may not change{shared}", hint=f"these may: {', '.join(brief.files)}")
    if len(text.encode()) > LARGEST:
        raise UsageError(f"{file} would be larger than {LARGEST} bytes", hint="split what is generated")
    changed = not path.is_file() or path.read_text(errors="replace") != text
    write_atomic(path, text)
    check = f"kernels_check with target={change.top} and variants=[{brief.variant}]"
    answer = {"schema_version": 1, "session": change.folder.id, "file": file, "changed": changed}
    screen.data(to_json({**answer, "next": f"{check}, then {change.judged(target)}"}))
