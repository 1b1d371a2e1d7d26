"""Worktrees of loop's own that are there: whose each is, and whether somebody has an edit in it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.remarks import remark
from loop.model.base import Model
from loop.repository import worktree
from loop.repository.git import git
from loop.repository.worktree import Worktree

OWNER = "loop-session"
"""A note in git's own folder for the worktree, which goes with it: the session folder that it was made for."""


class Owner(Model):
    """The note."""

    format: int = 1
    session: str
    """The session folder's whole path."""


@dataclass(frozen=True)
class KeptWorktree:
    """One folder below the state folder's worktrees."""

    root: Path
    tree: Worktree | None
    """None where git no longer knows it, for its repository is gone, or it was never whole."""
    owner: Path | None
    """The session folder that it was made for; None where no note says."""

    def edits(self) -> dict[str, int] | None:
        """Files with uncommitted edits, to lines that differ; None where git cannot say."""
        with contextlib.suppress(LoopError):
            return self.tree.changed() if self.tree else None
        return None

    def remove(self) -> None:
        """Take it away, with git's note of it; commits and branches stay."""
        worktree.remove(self.tree or Worktree(self.root, self.root, None))


def note_owner(tree: Worktree, session: Path) -> None:
    """Write down which session a worktree is for; one that cannot be noted is nobody's, and stays."""
    with contextlib.suppress(OSError, LoopError):
        sums.write_sealed(_note_of(tree.root), Owner(session=str(session.absolute())))


def is_noted(tree: Worktree) -> bool:
    """Whether it was made to its end: the note is written last."""
    return _owner(tree.root) is not None


def every(folder: Path) -> Iterator[KeptWorktree]:
    """All folders there, by name. A link is none of ours."""
    for root in sorted(folder.iterdir()) if folder.is_dir() else ():
        if root.is_symlink() or not root.is_dir():
            continue
        tree = owner = None
        with contextlib.suppress(LoopError):
            if (root / ".git").exists():
                owner = _owner(root)
                common = Path(git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
                repository = common.parent if common.name == ".git" else common
                tree = Worktree(root, root, None if (root / ".git").is_dir() else repository)
        yield KeptWorktree(root, tree, owner)


def _note_of(root: Path) -> Path:
    """In the folder where git keeps what it knows of this worktree alone."""
    return Path(git(root, "rev-parse", "--absolute-git-dir").strip()) / OWNER


def _owner(root: Path) -> Path | None:
    """None where there is no note, or a damaged one: then the worktree is nobody's, and stays."""
    note = _note_of(root)
    try:
        return Path(sums.read_sealed(Owner, note).session)
    except OSError:
        return None
    except LoopError as error:
        remark(error.message)
        return None
