"""Submodules of a worktree: each at the revision that a commit names, without the network."""

import shutil
from pathlib import Path

from loop.base.errors import LoopError, WorkFailed
from loop.repository.git import git

LINK = "160000"
"""Mode of a submodule in a tree."""


class MissingSubmodule(WorkFailed):
    """A commit needs a submodule's commit that is not in the user's checkout of it."""


def clear_modules(root: Path, commit: str) -> None:
    """Take away the submodules in `root` that a commit does not have there."""
    for place in wanted(root, "HEAD").keys() - wanted(root, commit).keys():
        shutil.rmtree(root / place, ignore_errors=True)


def fill_modules(checkout: Path, root: Path) -> None:
    """Let the submodules of `root` hold what its HEAD names, without the network.

    From the user's checkout, or from what git keeps of a submodule that is not checked out now. Those that nobody
    ever fetched stay empty.

    Raises MissingSubmodule where a commit of theirs is not there.
    """
    names = _names_of_modules(root)
    for place, commit in wanted(root, "HEAD").items():
        into, sources = root / place, _sources(checkout, place, names.get(place, place))
        if not sources:
            continue
        source = next((source for source in sources if _holds(source, into, commit)), None)
        if source is None:
            message = f"its submodule {place} is at {commit[:12]}, which is not in {sources[0]}"
            raise MissingSubmodule(message, hint=f"git -C {sources[0]} fetch origin {commit}")
        git(into, "clean", "--quiet", "--force", "-d")
        fill_modules(source, into)


def _holds(source: Path, into: Path, commit: str) -> bool:
    """Let a folder hold a submodule's commit, from one of its repositories; whether that has it."""
    for _ in range(2):
        try:
            if not (into / ".git").exists():
                git(into.parent, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(into))
            git(into, "checkout", "--quiet", "--detach", "--force", commit)
        except LoopError:
            shutil.rmtree(into, ignore_errors=True)  # It may be of another repository.
            into.mkdir(parents=True)
        else:
            return True
    return False


def _sources(checkout: Path, place: str, name: str) -> list[Path]:
    """Where a submodule's commits may be: its checkout, and what git keeps of it under its name."""
    own = Path(git(checkout, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    modules = own / "modules" / name
    return [source for source, mark in ((checkout / place, ".git"), (modules, "HEAD")) if (source / mark).exists()]


def _names_of_modules(root: Path) -> dict[str, str]:
    """Path of each submodule to the name under which git keeps it."""
    if not (root / ".gitmodules").is_file():
        return {}
    try:
        rows = git(root, "config", "--file", ".gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    except LoopError:  # It names none.
        return {}
    pairs = (row.split("\n", 1) for row in rows.split("\0") if "\n" in row)
    return {place: key.removeprefix("submodule.").removesuffix(".path") for key, place in pairs}


def empty_modules(root: Path) -> list[str]:
    """Paths of submodules that a worktree does not hold."""
    return [place for place in wanted(root, "HEAD") if not (root / place / ".git").exists()]


def wanted(root: Path, commit: str) -> dict[str, str]:
    """Path of each submodule at a commit to the commit that it names."""
    rows = git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    links = [row.split("\t", 1) for row in rows if row.startswith(LINK)]
    return {place: facts.split()[2] for facts, place in links}
