"""The only place that knows git: reads commits and differences, never touches the user's checkout."""

from pathlib import Path

from loop.model.record import Revision

SHOWN = 20


def revision(folder: Path) -> Revision:
    """Commit, branch and uncommitted files of the repository around `folder`; empty outside one."""
    try:
        import git
    except ImportError:  # GitPython raises it when there is no git program.
        return Revision(commit=None)
    try:
        with git.Repo(folder, search_parent_directories=True) as repository:
            return _read(repository)
    except (git.GitError, ValueError, OSError):
        return Revision(commit=None)


def _read(repository: object) -> Revision:
    import git

    assert isinstance(repository, git.Repo)
    head = repository.head
    if not head.is_valid():
        return Revision(commit=None, dirty=True)
    lines = str(repository.git.status("--porcelain", "--untracked-files=normal")).splitlines()
    changed = tuple(line[3:] for line in lines)
    return Revision(
        commit=head.commit.hexsha,
        branch=None if head.is_detached else head.reference.name,
        dirty=bool(changed),
        changed=changed[:SHOWN],
    )
