"""Documents that are programs: files are written, commands run, and what they print is held against the text.

A block is fenced. Its first word is its language; a path after that is the file it is. `sh` is run from the folder
that everything is written to; the `text` block after it is what it prints, where a line `...` stands for any lines
and numbers, times, hashes and names of sessions stand for any others. `text exit=75` says how it ends.
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
"""What differs from run to run, and what stands for it."""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    rest: str
    """The file it is, or how a command ends."""
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    found = []
    for one in FENCE.finditer(text):
        language, _, rest = one["info"].strip().partition(" ")
        found.append(Block(language, rest.strip(), one["body"], text[: one.start()].count("\n") + 1))
    return found


def masked(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    shown = []
    for line in text.rstrip().splitlines():
        for pattern, instead in NAMES:
            line = pattern.sub(instead, line)
        shown.append(line.strip())
    return shown


def agrees(printed: str, told: str) -> bool:
    """Whether what was printed is what the document tells; `...` alone in a line is any lines."""
    lines = ("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in masked(told))
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in masked(printed))) is not None


def write_files(text: str, folder: Path) -> list[Path]:
    """The files that a document holds."""
    made = []
    for one in blocks(text):
        if one.rest and one.language not in ("sh", "text"):
            path = folder / one.rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.body)
            made.append(path)
    return made


TARGET_TAKEN = "target: the bundled one"  # Said on stderr outside of a target's folder; pages leave it out.


def run(text: str, folder: Path, **own: str) -> Iterator[tuple[Block, Block | None, int, str]]:
    """Run each `sh` block: what it should print, its end, what it prints. `own`: its variables."""
    write_files(text, folder)
    every = blocks(text)
    for place, one in enumerate(every):
        if one.language == "sh" and one.rest != "elsewhere":
            after = every[place + 1] if place + 1 < len(every) else None
            code, printed = bash(one.body, folder, own)
            yield one, after if after and after.language == "text" else None, code, printed


def wrong(name: str, text: str, folder: Path, **own: str) -> Iterator[str]:
    """Where a document called `name` says something else than what happens: its line, and what was printed."""
    for block, expected, code, printed in run(text, folder, **own):
        wanted = expected.rest.removeprefix("exit=") if expected and expected.rest else "0"
        if wanted != str(code) or (expected and not agrees(printed, expected.body)):
            yield f"{name}:{block.line}: exit {code}\n{printed}"


def bash(script: str, folder: Path, own: Mapping[str, str]) -> tuple[int, str]:
    """How a script ended, and what it printed; `own`: variables that it sees."""
    author = {
        "GIT_AUTHOR_NAME": "t",
        "GIT_COMMITTER_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@e.org",
        "LC_ALL": "C.UTF-8",
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, **author, "GIT_COMMITTER_EMAIL": "t@e.org", "PATH": path}
    env.pop("LOOP_SESSIONS", None)
    env |= own
    done = subprocess.run(
        ["bash", "-uc", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    lines = done.stdout.splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if not line.startswith(TARGET_TAKEN))
