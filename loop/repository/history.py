"""What git says of a folder: commits and the line between two, uncommitted files, files as a commit had them."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.model.record import Revision
from loop.repository.git import git, look, read_bytes

FIELDS = "%H%x1f%P%x1f%an%x1f%aI%x1f%s"
"""Hash, parents, author, date and subject of a commit, apart by a byte that no text has."""
SHOWN = 12
"""Letters of a hash that people are shown."""
DEEPEN = "this clone is shallow, older commits are not in it: git fetch --unshallow"


@dataclass(frozen=True)
class Commit:
    """One commit."""

    hash: str
    parents: tuple[str, ...]
    author: str
    when: datetime.datetime
    subject: str

    @property
    def short(self) -> str:
        """The hash as people are shown it."""
        return self.hash[:SHOWN]

    @property
    def merge(self) -> bool:
        """Whether it has several parents."""
        return len(self.parents) > 1

    def __str__(self) -> str:
        return f"{self.short} {self.subject} ({self.author}, {self.when:%Y-%m-%d})"


def resolve(folder: Path, revision: str) -> str:
    """The hash of the commit that a revision names. Raises LoopError where there is none."""
    try:
        return git(
            folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        ).strip()
    except LoopError as error:
        hint = DEEPEN if is_shallow(folder) else "git log --oneline names some"
        raise UsageError(f"{revision} is no commit of {folder}", hint=hint) from error


def is_shallow(folder: Path) -> bool:
    """Whether the older commits of a repository were left where it was cloned from."""
    return git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"


def line(folder: Path, good: str, bad: str) -> list[Commit]:
    """Commits after `good` up to `bad`, oldest first, by first parents: one for every merge of a branch.

    Raises LoopError where there is no such line: the two are equal, swapped or unrelated, or the clone is shallow.
    """
    first, last = resolve(folder, good), resolve(folder, bad)
    if first == last:
        raise UsageError(f"good and bad are the same commit, {first[:SHOWN]}", hint="name two that differ")
    if is_ancestor(folder, last, first):
        raise UsageError(
            f"bad ({last[:SHOWN]}) is older than good ({first[:SHOWN]}): they are swapped",
            hint=f"--good {bad} --bad {good}, if it was the other way round",
        )
    if not is_ancestor(folder, first, last):
        raise UsageError(f"{first[:SHOWN]} is no ancestor of {last[:SHOWN]}", hint=_related(folder, first, last))
    after = set(git(folder, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    return [one for one in _commits(folder, "--first-parent", f"{first}..{last}") if one.hash in after]


def _related(folder: Path, first: str, last: str) -> str:
    """What to do about two commits of which neither comes from the other."""
    if is_shallow(folder):
        return DEEPEN
    try:
        base = git(folder, "merge-base", first, last).strip()
    except LoopError:
        return "they have no common history"
    return f"both come from {base[:SHOWN]}: is that one good?"


def commit(folder: Path, revision: str) -> Commit:
    """The commit that a revision names."""
    return next(_commits(folder, "-1", resolve(folder, revision)))


def between(folder: Path, older: Sequence[str], newer: str) -> list[Commit]:
    """All commits that a commit has and the older ones have not, those of merged branches too; parents first."""
    return list(_commits(folder, "--topo-order", newer, "--not", *older))


def is_ancestor(folder: Path, older: str, newer: str) -> bool:
    """Whether one commit comes from another, or is it."""
    return git(folder, "rev-list", "--count", "--max-count=1", older, f"^{newer}").strip() == "0"


def trees_of(folder: Path, inside: str, commits: Iterable[str]) -> dict[str, str]:
    """Hash of all that a folder ("" for the top) held at each commit; empty where it was not."""
    wanted = list(dict.fromkeys(commits))
    asked = "".join(f"{commit}:{inside}\n" for commit in wanted)
    lines = git(folder, "cat-file", "--batch-check=%(objectname)", asked=asked).splitlines()
    return {commit: "" if line.endswith(" missing") else line for commit, line in zip(wanted, lines, strict=True)}


def difference(folder: Path, older: str, newer: str) -> str:
    """What changed between two commits below a folder, as a patch."""
    return git(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", older, newer, "--", ".")


def _commits(folder: Path, *which: str) -> Iterator[Commit]:
    text = git(folder, "log", "-z", "--reverse", f"--format={FIELDS}", *which)
    for record in filter(None, text.split("\0")):
        name, parents, author, when, subject = record.split("\x1f")
        yield Commit(name, tuple(parents.split()), author, datetime.datetime.fromisoformat(when), subject)


CHANGED_SHOWN = 20


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
        lines = look(top, "status", "--porcelain", "--untracked-files=normal").splitlines()
    except LoopError:
        return Revision(commit=None)
    changed = tuple(line[3:] for line in lines)
    branch_or_none = None if branch == "HEAD" else branch
    return Revision(commit=commit, branch=branch_or_none, dirty=bool(changed), changed=changed[:CHANGED_SHOWN])


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
    text, at = read_bytes(folder, "cat-file", "--batch", asked="".join(f"{one}\n" for one in blobs)), 0
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
        counted = lines_changed(look(top, *plain, commit, *here))
        new = look(top, "ls-files", "--others", "--exclude-standard", "-z", *here)
    except LoopError:
        return None
    return counted | dict.fromkeys(filter(None, new.split("\0")), 0)


def lines_changed(numstat: str) -> dict[str, int]:
    """Of `git diff --numstat -z`: files to lines added and removed together, 0 for what is not text."""
    rows = [row.split("\t", 2) for row in numstat.split("\0") if row]
    return {name: sum(int(count) for count in counts if count.isdigit()) for *counts, name in rows}
