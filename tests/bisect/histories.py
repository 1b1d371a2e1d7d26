"""Small repositories with a history: a file `speed` whose number a command prints, or a state that it judges."""

import contextlib
import io
import json
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.errors import LoopError
from loop.base.screen import Screen
from loop.bisect.command import BisectRequest, run_bisect
from tests.repository.test_reading import git


def make_history(folder: Path, values: Sequence[str], broken: Mapping[int, str] | None = None) -> list[str]:
    """A commit for each value of the file `state`; where `broken`, a file of that name too. Their hashes."""
    broken = broken or {}
    nodes = [
        Node(
            (number - 1,) if number else (),
            {"state": value, **({"broken": broken[number]} if number in broken else {})},
        )
        for number, value in enumerate(values)
    ]
    return import_history(folder, nodes)


def searched(
    folder: Path, good: str, script: str = "", probe: str | None = "exit", **terms: Any
) -> tuple[int, dict[str, Any], str]:
    """Exit code, answer and talk of `loop bisect --json` by a shell script, without a process of its own."""
    command = ("sh", "-c", script) if script else ()
    request = BisectRequest(good, target=folder, probe=probe, command=command, json=True, **terms)
    out, talk = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
        try:
            code = run_bisect(request, Screen())
        except LoopError as error:
            return error.exit_code, dict(error.found or {}), f"{error.message}; {error.hint}"
    return code, json.loads(out.getvalue()), talk.getvalue()


def blamed(answer: Mapping[str, Any]) -> list[str]:
    """Subjects of the commits that an answer names."""
    return [culprit["subject"] for culprit in answer["culprits"]]


@dataclass
class Node:
    """A commit of a history that is imported at once: its parents by their numbers, and all its files."""

    parents: tuple[int, ...]
    files: dict[str, str]


def import_history(folder: Path, nodes: Sequence[Node]) -> list[str]:
    """A repository of these commits; `main` is the last one, and checked out. Their hashes."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    text = "".join(_imported(number, node) for number, node in enumerate(nodes))
    command = ["git", "fast-import", "--quiet", "--export-marks=.git/marks"]
    subprocess.run(command, cwd=folder, input=text, text=True, check=True)
    git(folder, "reset", "-q", "--hard", "main")
    marks = dict(line.split() for line in (folder / ".git" / "marks").read_text().splitlines())
    (folder / ".git" / "marks").unlink()
    return [marks[f":{number + 1}"] for number in range(len(nodes))]


def _imported(number: int, node: Node) -> str:
    subject, when = f"commit {number}", 1_700_000_000 + 60 * number
    lines = [f"commit refs/heads/main\nmark :{number + 1}", f"committer t <t@example.org> {when} +0000"]
    lines.append(f"data {len(subject)}\n{subject}")
    for word, parent in zip(["from", *["merge"] * len(node.parents)], node.parents, strict=False):
        lines.append(f"{word} :{parent + 1}")
    lines.append("deleteall")
    lines += [f"M 644 inline {name}\ndata {len(text)}\n{text}" for name, text in node.files.items()]
    reset = "reset refs/heads/main\n" if not node.parents else ""
    return reset + "\n".join(lines) + "\n\n"


@dataclass
class Grown:
    """A random history with one culprit: bad is what has it among its ancestors, or is it."""

    nodes: list[Node]
    culprit: int
    good: int
    bad: int

    def brings(self, number: int) -> frozenset[int]:
        """A commit and all its ancestors."""
        found, rest = set(), [number]
        while rest:
            one = rest.pop()
            if one not in found:
                found.add(one)
                rest += self.nodes[one].parents
        return frozenset(found)


def grow(seed: int) -> Grown:
    """Commits, branches, merges both ways and of several at once, up to 30 % that cannot be judged."""
    draw = random.Random(seed)
    parents = _graph(draw, draw.randint(6, 48))
    nodes = [Node(one, {}) for one in parents]
    culprit, share = draw.randrange(1, len(nodes)), draw.choice((0.0, 0.1, 0.2, 0.3))
    grown = Grown(nodes, culprit, 0, len(nodes) - 1)
    above = [grown.brings(number) for number in range(len(nodes))]
    bad = [number for number, one in enumerate(above) if culprit in one]
    grown.bad = draw.choice((bad[-1], draw.choice(bad)))
    grown.good = draw.choice(
        (0, draw.choice([number for number in sorted(above[grown.bad]) if number not in bad]))
    )
    tests_nothing = {n for n in range(len(nodes)) if n not in (grown.good, grown.bad) and draw.random() < share}
    for number, node in enumerate(nodes):
        # Some commits change nothing that is judged: their tree is their parent's.
        node.files["state"] = "bad" if number in bad else "good"
        node.files["number"] = str((1350 if number in bad else 1000) + draw.randint(-4, 4))
        if draw.random() < 0.8:
            node.files["notes"] = str(number)
        if number in tests_nothing:
            node.files["broken"] = "no"
    return grown


def _graph(draw: random.Random, count: int) -> list[tuple[int, ...]]:
    """Parents of each commit; the last one has all others among its ancestors."""
    parents: list[tuple[int, ...]] = [()]
    main, sides = 0, list[int]()
    while len(parents) < count:
        number, what = len(parents), draw.random()
        if what < 0.15 and len(sides) < 4:
            sides.append(number)
            parents.append((draw.choice([main, *sides[:-1]]),))
        elif what < 0.5 and sides:
            at = draw.randrange(len(sides))
            parents.append((sides[at],))
            sides[at] = number
        elif what < 0.6 and sides:  # The main line is merged into a branch, or one branch into another.
            at = draw.randrange(len(sides))
            parents.append((sides[at], draw.choice([main, *(one for one in sides if one != sides[at])])))
            sides[at] = number
        elif what < 0.72 and sides:
            taken = draw.sample(sides, 2 if len(sides) > 1 and draw.random() < 0.2 else 1)
            sides = [one for one in sides if one not in taken]
            parents.append((main, *taken))
            main = number
        else:
            parents.append((main,))
            main = number
    for side in sides:
        parents.append((main, side))
        main = len(parents) - 1
    return parents
