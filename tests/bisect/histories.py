"""Small repositories with a history: a file `speed` whose number a command prints, or a state that it judges."""

import contextlib
import io
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.errors import LoopError
from loop.bisect.command import BisectRequest, run_bisect
from loop.report.screen import Screen
from tests.repository.test_reading import git


def make_history(folder: Path, values: Sequence[str], broken: Mapping[int, str] | None = None) -> list[str]:
    """Commit each value of the file `state`; commits in `broken` also get that file. Returns the hashes."""
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
            return error.exit_code, dict(error.partial_results or {}), f"{error.message}; {error.hint}"
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
