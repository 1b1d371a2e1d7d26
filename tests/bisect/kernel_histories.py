"""Repositories of the bundled `cpu` kernel with a history whose truth is known: merges, broken builds, refactors.

A commit is a set of features, and its files follow from them alone; so a merge has those of both sides, and a
broken build is mended by leaving its feature out. Equal seeds make equal repositories, hash by hash.
"""

import functools
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bisect import kernel_edits as edits

Case = Literal["slower", "wrong", "none", "recipe"]
Metric = Literal["latency", "correctness"]
CASES: tuple[Case, ...] = ("slower", "wrong", "none", "recipe")
FOLDER = "attention"
"""Of the target, in the repository."""
BREAKS, STAYS = 0.13, 0.5
"""Chances that a commit breaks the build, and that the next one leaves it so: a fifth does not build."""
BRANCHES, ASIDE = 0.12, 0.6
"""Chances that a branch begins, and that a commit goes to an open one."""
LONGEST = 5
"""Commits of a branch at most."""
RECIPES = ("flags", "units", "unloaded", "unlinked", "file")
"""What becomes of the recipe, in turn by seed; see `kernel_edits.RECIPES`."""
STRETCH = 6
"""Commits of the main line, about, for which what does not link stays."""
KINDS = ("docs", "remark", "rename", "move")
SHARES = (0.35, 0.3, 0.25, 0.1)
"""What ordinary commits do."""
EPOCH = 1_700_000_000
"""Seconds: when the first commit was made; the others follow by the hour."""
Features = frozenset[str]


@dataclass(frozen=True)
class History:
    """A repository, and what is true of it."""

    folder: Path
    """Of the target."""
    case: Case
    seed: int
    metric: Metric
    """What got worse."""
    good: str
    """Hash of the first commit."""
    bad: str
    """Hash of the last one."""
    culprit: str | None
    """Hash of the commit that made it worse; None: none did."""
    what: str
    """What it did, in a word."""
    broken: frozenset[str]
    """Hashes of commits without a build."""
    count: int
    """Commits."""
    merges: int
    """How many of them are merges."""


@dataclass
class Node:
    """A commit, as it is planned."""

    parents: tuple[int, ...]
    branch: str
    adds: Features = frozenset()
    """What it is there for, besides the ordinary."""
    drops: Features = frozenset()
    subject: str = ""
    features: Features = frozenset()

    @property
    def merge(self) -> bool:
        """Whether it has two parents."""
        return len(self.parents) > 1


def make_history(folder: Path, case: Case, seed: int, count: int = 128) -> History:
    """A repository of `count` commits in a new folder; the first one is good."""
    draw = random.Random(f"{case} {seed}")
    nodes = graph(draw, count)
    what, metric, culprit = change(nodes, case, seed, draw)
    fill(nodes, draw)
    hashes = written(folder, nodes)
    return History(
        folder=folder / FOLDER,
        case=case,
        seed=seed,
        metric=metric,
        good=hashes[0],
        bad=hashes[-1],
        culprit=None if culprit is None else hashes[culprit],
        what=what,
        broken=frozenset(hashes[number] for number, one in enumerate(nodes) if is_broken(one.features)),
        count=count,
        merges=sum(one.merge for one in nodes),
    )


# Which commits there are


def graph(draw: random.Random, count: int) -> list[Node]:
    """So many commits, parents first: a main line, and one branch after the other that is merged into it."""
    nodes, main, side, left, number = [Node((), "main")], 0, -1, 0, 0
    while len(nodes) < count - 1:
        room = count - 1 - len(nodes)
        if side < 0 and room > LONGEST + 2 and draw.random() < BRANCHES:
            left, number = draw.randint(2, LONGEST), number + 1
            nodes.append(Node((main,), f"side-{number}"))
            side, left = len(nodes) - 1, left - 1
        elif side >= 0 and (left == 0 or room == 1):
            nodes.append(Node((main, side), "main"))
            main, side = len(nodes) - 1, -1
        elif side >= 0 and draw.random() < ASIDE:
            nodes.append(Node((side,), f"side-{number}"))
            side, left = len(nodes) - 1, left - 1
        else:
            nodes.append(Node((main,), "main"))
            main = len(nodes) - 1
    nodes.append(Node((main,), "main"))
    return nodes


def change(nodes: list[Node], case: Case, seed: int, draw: random.Random) -> tuple[str, Metric, int | None]:
    """Give commits what the case is about: what that is, what gets worse, and with which commit."""
    ordinary = [number for number, one in enumerate(nodes[:-1]) if number and not one.merge]
    slow, wrong = f"slow {seed % len(edits.SLOWER)}", f"wrong {seed % len(edits.WRONG)}"
    if case == "none":
        return "nothing", "latency", None
    if case != "recipe":
        return _one(nodes, draw.choice(ordinary), slow if case == "slower" else wrong)
    recipe = RECIPES[seed % len(RECIPES)]
    if recipe in ("flags", "unloaded"):
        return _one(nodes, draw.choice(ordinary), f"recipe {recipe}")
    if recipe == "unlinked":
        return _within_a_stretch(nodes, slow, draw)
    other, culprit = draw.sample(ordinary, 2)
    _one(nodes, other, f"recipe {recipe}")
    what, metric, _ = _one(nodes, culprit, slow)
    return f"recipe {recipe}, {what}", metric, culprit


def _one(nodes: list[Node], number: int, feature: str) -> tuple[str, Metric, int]:
    """Give a commit one feature."""
    nodes[number].adds |= {feature}
    wrong = feature.startswith("wrong") or feature == "recipe unloaded"
    return feature, "correctness" if wrong else "latency", number


def _within_a_stretch(nodes: list[Node], slow: str, draw: random.Random) -> tuple[str, Metric, int]:
    """Something slower while nothing could be linked: it is one of several, and nobody can say which."""
    main = [number for number, one in enumerate(nodes[:-1]) if number and one.branch == "main" and not one.merge]
    first = draw.randrange(len(main) - STRETCH)
    begin, *between, end = main[first : first + STRETCH]
    nodes[begin].adds |= {"recipe unlinked"}
    nodes[end].adds, nodes[end].drops = frozenset({"recipe units"}), frozenset({"recipe unlinked"})
    what, metric, culprit = _one(nodes, draw.choice(between), slow)
    return f"recipe unlinked, {what}", metric, culprit


# What each of them holds


def fill(nodes: list[Node], draw: random.Random) -> None:
    """Give every commit its features, and its subject."""
    counts = dict.fromkeys((*KINDS, "broken"), 0)
    for number, node in enumerate(nodes):
        if node.merge:
            node.features, node.subject = _merged(nodes, node), f"Merge {nodes[node.parents[1]].branch}"
        elif number:
            _develop(node, nodes[node.parents[0]].features, counts, draw, last=number == len(nodes) - 1)
        else:
            node.subject = "Attention on the CPU"


def _develop(node: Node, before: Features, counts: dict[str, int], draw: random.Random, *, last: bool) -> None:
    """An ordinary commit: what it is there for, and at times it breaks the build, or mends it."""
    (kind,) = draw.choices(KINDS, SHARES)
    most = {"rename": len(edits.NAMES), "move": len(edits.MOVES)}
    if counts[kind] >= most.get(kind, len(SHARES) * 10**6):
        kind = "remark"
    adds = node.adds or {f"{kind} {counts[kind]}"}
    counts[kind] += 1
    drops, stale = node.drops, {one for one in before if one.startswith("broken")}
    if stale and (last or draw.random() >= STAYS):
        drops |= stale
    elif not stale and not last and draw.random() < BREAKS:
        adds |= {f"broken {counts['broken']}"}
        counts["broken"] += 1
    node.features = (before - drops) | adds
    node.subject = SUBJECTS.get(kind, kind) if not node.adds else "Work on the kernel"


SUBJECTS = {"docs": "Notes", "remark": "Remarks", "rename": "Better names", "move": "Put it where it belongs"}


def _merged(nodes: list[Node], node: Node) -> Features:
    """Both sides' features, less what either has left out since they parted."""
    main, side = (nodes[number].features for number in node.parents)
    start = nodes[_fork(nodes, node.parents[1])].features
    return (main | side) - (start - main) - (start - side)


def _fork(nodes: list[Node], number: int) -> int:
    """The commit that a branch began from."""
    branch = nodes[number].branch
    while nodes[number].branch == branch:
        number = nodes[number].parents[0]
    return number


def is_broken(features: Features) -> bool:
    """Whether there is no build."""
    return any(one.startswith("broken") or one == "recipe unlinked" for one in features)


ORDER = ("slow", "wrong", "move", "recipe", "rename", "remark", "broken")
"""In which edits are made: those that look for a text before those that change it."""


@functools.cache
def files_of(features: Features) -> dict[str, str]:
    """Everything that a commit holds, by its path in the repository."""
    named = sorted((one.split() for one in features), key=lambda words: words[1].zfill(9))
    files = edits.pristine()
    for kind in ORDER:
        for one, which in named:
            if one == kind:
                _edit(kind, which)(files)
    notes = {f"docs/note-{which}.md": f"# Note {which}\n" for kind, which in named if kind == "docs"}
    readme = "".join(f"\nNote {which}.\n" for kind, which in named if kind == "docs" and int(which) % 3 == 0)
    files["README.md"] += readme
    return {"README.md": "# A project\n", **notes, **{f"{FOLDER}/{path}": text for path, text in files.items()}}


def _edit(kind: str, which: str) -> edits.Edit:
    """A feature as an edit."""
    if kind == "recipe":
        return edits.RECIPES[which]
    made = {"move": edits.moved, "rename": edits.renamed, "remark": edits.remarked}
    if kind in made:
        return made[kind](int(which))
    several = {"slow": edits.SLOWER, "wrong": edits.WRONG, "broken": edits.BROKEN}[kind]
    return several[int(which) % len(several)]


# Into git


def written(folder: Path, nodes: Sequence[Node]) -> list[str]:
    """The repository, its last commit checked out; the hashes of the commits."""
    folder.mkdir(parents=True)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    marks = folder / ".git" / "made"
    stream = "".join(_stream(nodes)).encode()
    subprocess.run([*git, "fast-import", "--quiet", f"--export-marks={marks}"], input=stream, check=True)
    subprocess.run([*git, "reset", "-q", "--hard", "main"], check=True)
    pairs = (line.split() for line in marks.read_text().splitlines())
    hashes = {int(mark.removeprefix(":")): commit for mark, commit in pairs}
    return [hashes[number + 1] for number in range(len(nodes))]


def _stream(nodes: Sequence[Node]) -> Iterator[str]:
    """What `git fast-import` reads; what differs from the first parent, commit by commit."""
    for number, node in enumerate(nodes):
        before = files_of(nodes[node.parents[0]].features) if node.parents else {}
        now = files_of(node.features)
        yield f"commit refs/heads/{node.branch}\nmark :{number + 1}\n"
        for role in ("author", "committer"):
            yield f"{role} {node.branch.title()} <{node.branch}@example.org> {EPOCH + 3600 * number} +0000\n"
        yield f"data {len(node.subject)}\n{node.subject}\n"
        for word, parent in zip(("from", "merge"), node.parents, strict=False):
            yield f"{word} :{parent + 1}\n"
        yield from (f"D {path}\n" for path in before.keys() - now.keys())
        for path, text in now.items():
            if before.get(path) != text:
                yield f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n"
        yield "\n"
