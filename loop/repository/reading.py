"""What a repository holds: commits and differences, read without touching the checkout."""

from pathlib import Path
from typing import Any

from loop.base.errors import LoopError, WorkFailed
from loop.model.record import Revision
from loop.repository.git import look, opened

SHOWN = 20
LINK = 0o120000
"""Mode of a symbolic link in a tree: not followed, for it may lead anywhere."""


def revision(folder: Path) -> Revision:
    """Commit, branch and uncommitted files of the repository around `folder`; empty outside one."""
    try:
        import git
    except ImportError:  # GitPython raises it when there is no git program.
        return Revision(commit=None)
    try:
        with opened(folder) as repository:
            return _read(repository)
    except (LoopError, git.GitError, ValueError, OSError):
        return Revision(commit=None)


def export(folder: Path, commit: str, into: Path) -> Path:
    """Write the files that `folder` held at a commit below `into`; their place there.

    Nothing of the checkout is touched. Raises LoopError when the commit or the folder is not there.
    """
    import git

    try:
        with opened(folder) as repository:
            inside = folder.resolve().relative_to(Path(str(repository.working_tree_dir)).resolve())
            tree = repository.commit(commit).tree
            _write(tree if inside == Path(".") else tree / str(inside), into)
    except (git.GitError, git.exc.ODBError, ValueError, KeyError, OSError) as error:
        raise WorkFailed(f"{commit[:12]} cannot be read: {error}") from error
    return into


def changes(folder: Path, commit: str) -> dict[str, int]:
    """Files below `folder` that differ from a commit, committed or not, to lines added and removed.

    Untracked files count with 0 lines. Empty outside a repository, or where the commit is not known.
    """
    import git

    try:
        with opened(folder) as repository:
            top = Path(str(repository.working_tree_dir))
        text = look(
            top,
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            commit,
            "--numstat",
            "--no-renames",
            "-z",
            "--",
            str(folder.absolute()),
        )
        new = look(top, "ls-files", "--others", "--exclude-standard", "-z", "--", str(folder.absolute()))
    except (LoopError, git.GitError, ValueError, OSError):
        return {}
    rows = [line.split("\t", 2) for line in text.split("\0") if line]
    found = {name: sum(int(count) for count in counts if count.isdigit()) for *counts, name in rows}
    return found | dict.fromkeys(filter(None, new.split("\0")), 0)


def _write(tree: Any, into: Path) -> None:
    for blob in tree.traverse():
        path = into / Path(blob.path).relative_to(tree.path or ".")
        if blob.type == "tree":
            path.mkdir(parents=True, exist_ok=True)
        elif blob.mode != LINK:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blob.data_stream.read())
            path.chmod(blob.mode & 0o777)


def _read(repository: object) -> Revision:
    import git

    assert isinstance(repository, git.Repo)
    head = repository.head
    if not head.is_valid():
        return Revision(commit=None, dirty=True)
    top = Path(str(repository.working_tree_dir))
    lines = look(top, "status", "--porcelain", "--untracked-files=normal").splitlines()
    changed = tuple(line[3:] for line in lines)
    return Revision(
        commit=head.commit.hexsha,
        branch=None if head.is_detached else head.reference.name,
        dirty=bool(changed),
        changed=changed[:SHOWN],
    )
