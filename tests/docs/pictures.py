"""`make pictures`: what real commands print in a real terminal, as the pictures of the README."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.docs import terminal

FOLDER = ROOT / "docs" / "pictures"


@dataclass(frozen=True)
class Picture:
    """One picture and the command that it shows."""

    name: str
    command: str
    """As a reader types it; it is run as it stands."""
    about: str
    """For those who cannot see it."""
    most: int = 40
    """Lines that are shown."""


PICTURES = (
    Picture(
        "session", "loop run session quick --variant cpu", "A session in a terminal: each step with its outcome"
    ),
    Picture("report", "loop report last --format summary", "The summary of a session, as Markdown"),
    Picture("patterns", "loop patterns list", "All patterns, a row each", 44),
)
FIGURES = ("ratios.svg",)
"""Figures of the session's own report that are shown as they are."""


def write() -> list[str]:
    """Run the commands one after the other in folders of their own, and draw what they print."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for one in PICTURES:
            (FOLDER / f"{one.name}.svg").write_text(drawn(one, printed(one.command, Path(scratch))))
        figures = {path.name: path for path in Path(scratch).glob("sessions/*/figures/*.svg")}
        for name in FIGURES:
            if name in figures:
                shutil.copyfile(figures[name], FOLDER / name)
    return sorted(f"docs/pictures/{path.name}" for path in FOLDER.glob("*.svg"))


def drawn(one: Picture, text: str) -> str:
    """A picture of what was printed, its folders named as a reader's are."""
    lines = re.sub(r"/\S*/(sessions/)", r"\1", text).rstrip().split("\n")
    more = [f"... {len(lines) - one.most} more lines"] if len(lines) > one.most + 1 else []
    return terminal.picture(one.command, "\n".join([*lines[: one.most], *more]), about=one.about)


IGNORED = ("NO_COLOR", "CI", "COLUMNS", "LINES")
"""What would change a terminal's looks: a terminal of its own size has none of them set."""


def printed(command: str, scratch: Path, columns: int = terminal.COLUMNS, **own: str) -> str:
    """What a command prints in a terminal, with colours, once everything has been printed."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in IGNORED}
    env |= {"TERM": "xterm-256color", "HOME": str(scratch), "LOOP_SESSIONS": str(scratch / "sessions")}
    env |= {
        "LOOP_CACHE": str(scratch / "cache"),
        "LOOP_STATE": str(scratch / "state"),
        "LOOP_WATCH_PREEMPTION": "off",
    }
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", **own}
    program = [shutil.which("bash") or "bash", "-c", command]
    running = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, env=env, cwd=ROOT)
    os.close(side)
    text = b""
    while chunk := _read(main):
        text += chunk
    running.wait()
    os.close(main)
    return text.decode(errors="replace")


def _read(main: int) -> bytes:
    try:
        return os.read(main, 65536)
    except OSError:  # Linux says so when the last program that held the terminal has gone.
        return b""
