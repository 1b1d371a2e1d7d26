"""The line of commits between a good and a bad one: which they are, what they touch, where they merge."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from loop.base.errors import LoopError, UsageError
from loop.base.remarks import inert
from loop.repository.git import git, read_bytes, shown

FIELDS = "%H%x00%P%x00%aN%x00%aI%x00%s"
"""Hash, parents, author by the mailmap, date and subject of a commit, apart by a byte that no commit can have."""
SHOWN = 12
"""Letters of a hash that people are shown."""
DEEPEN = "this clone is shallow, older commits are not in it: git fetch --unshallow"


@dataclass(frozen=True)
class Commit:
    """One commit."""

    hash: str
    parents: tuple[str, ...]
    author: str
    when: datetime.datetime | None
    """None where the commit holds no date."""
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
        when = f", {self.when:%Y-%m-%d}" if self.when else ""
        return f"{self.short} {self.subject} ({self.author}{when})"


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
    commits = _commits(folder, "--first-parent", f"{first}..{last}")
    return [commit for commit in commits if commit.hash in after]


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
    unique = list(dict.fromkeys(commits))
    queries = "".join(f"{commit}:{inside}\n" for commit in unique)
    lines = git(folder, "cat-file", "--batch-check=%(objectname)", stdin=queries).splitlines()
    return {commit: "" if line.endswith(" missing") else line for commit, line in zip(unique, lines, strict=True)}


def held(folder: Path, commit: str) -> dict[str, str]:
    """Path of every file, link and submodule of a commit to its object."""
    rows = git(folder, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    pairs = (row.split("\t", 1) for row in rows if row)
    return {path: facts.split()[2] for facts, path in pairs}


def changes(folder: Path, commits: Sequence[str]) -> list[dict[str, str]]:
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
    return shown(
        read_bytes(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", older, newer, "--", ".")
    )


def _commits(folder: Path, *which: str) -> Iterator[Commit]:
    words = read_bytes(folder, "log", "-z", "--reverse", f"--format={FIELDS}", *which).split(b"\0")
    for at in range(0, len(words) - 1, FIELDS.count("%x00") + 1):
        name, parents, author, when, subject = map(shown, words[at : at + 5])
        yield Commit(name, tuple(parents.split()), one_line(author), _date(when), one_line(subject))


def one_line(text: str) -> str:
    """A subject or a name without what a terminal acts on."""
    return " ".join(inert(text).split())


def _date(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:  # Nothing, or a year that is none.
        return None
