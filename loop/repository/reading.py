"""What a repository holds: commits and differences, read without touching the checkout."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.errors import LoopError, WorkFailed
from loop.model.record import Revision
from loop.repository.git import git, read_bytes

SHOWN = 20
AS_IT_STOOD = "The checkout as it stood, with its uncommitted changes"
"""The commit that a session begins with where a checkout differs from its last one."""


def root_of(folder: Path) -> Path | None:
    """Root of the checkout around `folder`; None outside one."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except LoopError:
        return None


def revision(folder: Path) -> Revision:
    """Commit, branch and uncommitted files of the repository around `folder`; empty outside one."""
    top = root_of(folder)
    if top is None:
        return Revision(commit=None)
    try:
        commit = git(folder, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    except LoopError:
        return Revision(commit=None, dirty=True)
    try:
        branch = git(folder, "rev-parse", "--symbolic-full-name", "HEAD").strip().removeprefix("refs/heads/")
        lines = git(top, "status", "--porcelain", "--untracked-files=normal").splitlines()
    except LoopError:
        return Revision(commit=None)
    changed = tuple(line[3:] for line in lines)
    branch_or_none = None if branch == "HEAD" else branch
    return Revision(commit=commit, branch=branch_or_none, dirty=bool(changed), changed=changed[:SHOWN])


def export(folder: Path, commit: str, into: Path) -> Path:
    """Write the files that `folder` held at a commit below `into`; their place there.

    Nothing of the checkout is touched, and no filter runs. Raises LoopError when the commit or the folder is not
    there.
    """
    try:
        top = Path(git(folder, "rev-parse", "--show-toplevel").strip()).resolve()
        inside = folder.resolve().relative_to(top).as_posix()
        tree = f"{commit}:{'' if inside == '.' else inside}"
        rows = git(top, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree).split("\0")
        files = [row.split("\t", 1) for row in rows if row.startswith("100")]  # A link may lead anywhere.
        texts = _contents(top, [facts.split()[2] for facts, _ in files])
        for (facts, name), content in zip(files, texts, strict=True):
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(int(facts.split()[0], 8) & 0o777)
    except (LoopError, OSError, ValueError) as error:
        raise WorkFailed(f"{commit[:12]} cannot be read: {error}") from error
    return into


def _contents(folder: Path, blobs: Sequence[str]) -> Iterator[bytes]:
    """What each of these objects holds."""
    text, at = read_bytes(folder, "cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs)), 0
    for _ in blobs:
        begin = text.index(b"\n", at) + 1  # After a line of hash, kind and size.
        at = begin + int(text[at:begin].split()[2])
        yield text[begin:at]
        at += 1


def changes(folder: Path, commit: str) -> dict[str, int] | None:
    """Files below `folder` that differ from a commit, committed or not, to lines added and removed.

    Untracked files count with 0 lines. None outside a repository, or where the commit is not known.
    """
    here = ("--", str(folder.absolute()))
    try:
        top = Path(git(folder, "rev-parse", "--show-toplevel").strip())
        plain = ("diff", "--no-ext-diff", "--no-textconv", "--numstat", "--no-renames", "-z")
        counted = lines_changed(git(top, *plain, commit, *here))
        new = git(top, "ls-files", "--others", "--exclude-standard", "-z", *here)
    except LoopError:
        return None
    return counted | dict.fromkeys(filter(None, new.split("\0")), 0)


def takes_back(folder: Path, commit: str) -> bool:
    """Whether `git revert` would take a commit back without a conflict, from files that were committed."""
    try:
        top = Path(git(folder, "rev-parse", "--show-toplevel").strip())
        change = git(top, "diff", "--no-ext-diff", "--no-textconv", "--no-renames", f"{commit}^", commit)
        read_bytes(top, "apply", "--check", "--index", "--reverse", "-", stdin=change)
    except LoopError:
        return False
    return True


def lines_changed(numstat: str) -> dict[str, int]:
    """Of `git diff --numstat -z`: files to lines added and removed together, 0 for what is not text."""
    rows = [row.split("\t", 2) for row in numstat.split("\0") if row]
    return {name: sum(int(count) for count in counts if count.isdigit()) for *counts, name in rows}


def holds_uncommitted(folder: Path, branch: str) -> bool:
    """Whether a branch of a session begins with what was not committed in the checkout."""
    try:
        return AS_IT_STOOD in git(folder, "log", "--format=%s", f"HEAD..{branch}").splitlines()
    except LoopError:
        return False
