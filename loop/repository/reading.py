"""What a repository holds: commits and differences, read without touching the checkout."""

import datetime
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from loop.base.errors import LoopError, UsageError, WorkFailed, without_escapes
from loop.model.bisect import Candidate
from loop.model.record import Revision
from loop.repository.git import git, read_bytes, shown_text

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
    changed = tuple(line[3:] for line in lines[:SHOWN])
    named = None if branch == "HEAD" else branch
    return Revision(commit=commit, branch=named, dirty=bool(lines), changed=changed)


def export(folder: Path, commit: str, into: Path) -> Path:
    """Write the files that `folder` held at a commit below `into`; their place there.

    Nothing of the checkout is touched, and no filter runs. Raises LoopError when the commit or the folder is not
    there.
    """
    try:
        top = (root_of(folder) or folder).resolve()
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
    here, top = ("--", str(folder.absolute())), root_of(folder)
    if top is None:
        return None
    try:
        plain = ("diff", "--no-ext-diff", "--no-textconv", "--numstat", "--no-renames", "-z")
        counted = lines_changed(git(top, *plain, commit, *here))
        new = git(top, "ls-files", "--others", "--exclude-standard", "-z", *here)
    except LoopError:
        return None
    return counted | dict.fromkeys(filter(None, new.split("\0")), 0)


def takes_back(folder: Path, commit: str) -> bool:
    """Whether `git revert` would take a commit back without a conflict, from files that were committed."""
    top = root_of(folder) or folder
    try:
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


FIELDS = "%H%x00%T%x00%P%x00%aN%x00%aI%x00%s"
"""Hash, tree, parents, author by the mailmap, date and subject, apart by a byte that no commit can have."""
SHOWN_LETTERS = 12
"""Letters of a hash that people are shown."""
DEEPEN = "this clone is shallow, older commits are not in it: git fetch --unshallow"


def resolve(folder: Path, revision: str) -> str:
    """The hash of the commit that a revision names. Raises LoopError where there is none."""
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return git(folder, *asked).strip()
    except LoopError as error:
        hint = DEEPEN if is_shallow(folder) else "git log --oneline names some"
        raise UsageError(f"{revision} is no commit of {folder}", hint=hint) from error


def is_shallow(folder: Path) -> bool:
    """Whether the older commits of a repository were left where it was cloned from."""
    return git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"


def first_parents(folder: Path, good: str, bad: str) -> list[Candidate]:
    """Commits after `good` up to `bad`, oldest first, by first parents: one for every merge of a branch.

    Raises LoopError where there is no such line: the two are equal, swapped or unrelated, or the clone is shallow.
    """
    first, last = resolve(folder, good), resolve(folder, bad)
    older, newer = first[:SHOWN_LETTERS], last[:SHOWN_LETTERS]
    if first == last:
        raise UsageError(f"good and bad are the same commit, {older}", hint="name two that differ")
    if is_ancestor(folder, last, first):
        hint = f"--good {bad} --bad {good}, if it was the other way round"
        raise UsageError(f"bad ({newer}) is older than good ({older}): they are swapped", hint)
    if not is_ancestor(folder, first, last):
        try:
            base = git(folder, "merge-base", first, last).strip()[:SHOWN_LETTERS]
            hint = f"both come from {base}: is that one good?"
        except LoopError:
            hint = "they have no common history"
        raise UsageError(f"{older} is no ancestor of {newer}", DEEPEN if is_shallow(folder) else hint)
    after = set(git(folder, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    commits = _commits(folder, "--first-parent", f"{first}..{last}")
    return [commit for commit in commits if commit.commit in after]


def commit(folder: Path, revision: str) -> Candidate:
    """The commit that a revision names."""
    return next(_commits(folder, "-1", resolve(folder, revision)))


def commits_between(folder: Path, older: Sequence[str], newer: str) -> list[Candidate]:
    """All commits that a commit has and the older ones have not, those of merged branches too; parents first."""
    return list(_commits(folder, "--topo-order", newer, "--not", *older))


def is_ancestor(folder: Path, older: str, newer: str) -> bool:
    """Whether one commit comes from another, or is it."""
    return git(folder, "rev-list", "--count", "--max-count=1", older, f"^{newer}").strip() == "0"


def objects_of_commit(folder: Path, commit: str) -> dict[str, str]:
    """Path of every file, link and submodule of a commit to its object."""
    rows = git(folder, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    pairs = (row.split("\t", 1) for row in rows if row)
    return {path: facts.split()[2] for facts, path in pairs}


def changed_objects(folder: Path, commits: Sequence[str]) -> list[dict[str, str]]:
    """Of each commit but the first: what differs from the one before, by path, and its object; empty: gone."""
    pairs = "".join(f"{now} {before}\n" for before, now in pairwise(commits))
    words = git(folder, "diff-tree", "--stdin", "-r", "--no-renames", "--raw", "-z", stdin=pairs).split("\0")
    different: dict[str, dict[str, str]] = {commit: {} for commit in commits}
    at, commit = 0, ""
    while at < len(words) - 1:
        if not words[at].startswith(":"):
            commit, at = words[at], at + 1
            continue
        facts = words[at].split()
        different[commit][words[at + 1]] = "" if facts[4] == "D" else facts[3]
        at += 2
    return [different[commit] for commit in commits[1:]]


def objects_of(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Files of the checkout, by their path from the top, to the objects they would be; empty: gone."""
    there = [name for name in names if (folder / name).is_file() and "\n" not in name]
    objects = git(folder, "hash-object", "--stdin-paths", stdin="".join(f"{name}\n" for name in there)).split()
    return {**dict.fromkeys(names, ""), **dict(zip(there, objects, strict=True))}


def difference(folder: Path, older: str, newer: str) -> str:
    """What changed between two commits below a folder, as a patch."""
    words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", older, newer, "--", ".")
    return shown_text(read_bytes(folder, *words))


def _commits(folder: Path, *which: str) -> Iterator[Candidate]:
    words = read_bytes(folder, "log", "-z", "--reverse", f"--format={FIELDS}", *which).split(b"\0")
    for at in range(0, len(words) - 1, FIELDS.count("%x00") + 1):
        name, tree, parents, author, date, subject = map(shown_text, words[at : at + 6])
        try:
            when = datetime.datetime.fromisoformat(date)
        except ValueError:  # Nothing, or a year that is none.
            when = None
        yield Candidate(
            commit=name,
            subject=one_line(subject),
            author=one_line(author),
            when=when,
            merge=len(parents.split()) > 1,
            parents=tuple(parents.split()),
            tree=tree,
        )


def one_line(text: str) -> str:
    """A subject or a name without what a terminal acts on."""
    return " ".join(without_escapes(text).split())
