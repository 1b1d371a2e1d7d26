"""Documents that are programs: writes their files, runs their commands, and compares output with the text.

A fenced block begins with its language. A path after that names the file to write. `sh` blocks run in the folder
of those files. The `text` block after one is its output: a line `...` stands for any lines, and each number, time,
hash or session's name for any other. `text exit=75` gives the exit status.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
NAMES = (
    (re.compile(r"\d{4}-\d\d-\d\d-\d{6}(-[a-z]+)(-\d+)?"), r"<session\1>"),
    (re.compile(r"(/[^\s:'\"]+)+/(?=[^\s/])"), "<folder>/"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "<hash>"),
    (re.compile(r"[<>]?(?:(?<=\s)-)?\b\d[\d.,]*(e[+-]?\d+)?"), "#"),
    (re.compile(r"# (ms|µs|s|min #? ?s?|min)\b"), "# <time>"),
    (re.compile(r"[ \t]+"), " "),
)
"""Patterns of what differs from run to run, with their replacements."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    rest: str
    """The path of a file, or `exit=N` of a command."""
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    parsed = []
    for fence in FENCE.finditer(text):
        language, _, rest = fence["info"].strip().partition(" ")
        parsed.append(Block(language, rest.strip(), fence["body"], text[: fence.start()].count("\n") + 1))
    return parsed


def masked(text: str) -> list[str]:
    """Lines in which values that differ from run to run are replaced."""
    shown = []
    for line in text.rstrip().splitlines():
        for pattern, instead in NAMES:
            line = pattern.sub(instead, line)
        shown.append(line.strip())
    return shown


def agrees(printed: str, expected: str) -> bool:
    """Whether printed text matches a document's block; a line `...` matches any lines."""
    lines = ("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in masked(expected))
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in masked(printed))) is not None


def write_files(text: str, folder: Path) -> list[Path]:
    """Write the files of a document into a folder; return their paths."""
    paths = []
    for block in blocks(text):
        if block.rest and block.language not in ("sh", "text"):
            path = folder / block.rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body)
            paths.append(path)
    return paths


TARGET_TAKEN = "target: the bundled one"  # A remark on stderr outside of a target's folder; pages leave it out.


def run(text: str, folder: Path, **variables: str) -> Iterator[tuple[Block, Block | None, int, str]]:
    """Run each `sh` block; yield it, its expected output, its exit code and its output."""
    write_files(text, folder)
    all_blocks = blocks(text)
    for place, block in enumerate(all_blocks):
        if block.language == "sh" and block.rest != "elsewhere":
            following = all_blocks[place + 1] if place + 1 < len(all_blocks) else None
            code, printed = bash(block.body, folder, variables)
            yield block, following if following and following.language == "text" else None, code, printed


def wrong(name: str, text: str, folder: Path, **variables: str) -> Iterator[str]:
    """Differences between a document and a run of its commands: line, exit code and output."""
    for block, expected, code, printed in run(text, folder, **variables):
        exit_code = expected.rest.removeprefix("exit=") if expected and expected.rest else "0"
        if exit_code != str(code) or (expected and not agrees(printed, expected.body)):
            yield f"{name}:{block.line}: exit {code}\n{printed}"


def bash(script: str, folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output of a script with these environment variables."""
    author = {
        "GIT_AUTHOR_NAME": "t",
        "GIT_COMMITTER_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@e.org",
        "LC_ALL": "C.UTF-8",
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **author, "GIT_COMMITTER_EMAIL": "t@e.org", "PATH": path}
    env.pop("LOOP_SESSIONS", None)
    env |= variables
    child = subprocess.run(
        ["bash", "-uc", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    lines = child.stdout.splitlines(keepends=True)
    return child.returncode, "".join(line for line in lines if not line.startswith(TARGET_TAKEN))
