"""Submodules of a worktree of loop's own: filled from those of the user's checkout, never over a network."""

import shutil
from pathlib import Path

from loop.base.errors import LoopError, WorkFailed
from loop.repository.git import git

LINK = "160000"
"""Mode of a submodule in a tree."""


class Unavailable(WorkFailed):
    """A commit needs a submodule's commit that is not in the user's checkout of it."""


def clear(root: Path, commit: str) -> None:
    """Take away the submodules in `root` that a commit does not have there."""
    for place in wanted(root, "HEAD").keys() - wanted(root, commit).keys():
        shutil.rmtree(root / place, ignore_errors=True)


def fill(checkout: Path, root: Path) -> None:
    """Let the submodules of `root` hold what its HEAD names; those that the checkout leaves empty stay so.

    Raises Unavailable where a commit of theirs is not there.
    """
    for place, commit in wanted(root, "HEAD").items():
        source, into = checkout / place, root / place
        if not (source / ".git").exists():
            continue
        if not (into / ".git").exists():
            git(root, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(into))
        try:
            git(into, "checkout", "--quiet", "--detach", "--force", commit)
        except LoopError as error:
            message = f"its submodule {place} is at {commit[:12]}, which is not in {source}"
            raise Unavailable(message, hint=f"git -C {source} fetch origin {commit}") from error
        git(into, "clean", "--quiet", "--force", "-d")
        fill(source, into)


def wanted(root: Path, commit: str) -> dict[str, str]:
    """Path of each submodule at a commit to the commit that it names."""
    if not git(root, "ls-tree", commit, "--", ".gitmodules"):
        return {}
    rows = git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    links = [row.split("\t", 1) for row in rows if row.startswith(LINK)]
    return {place: facts.split()[2] for facts, place in links}
