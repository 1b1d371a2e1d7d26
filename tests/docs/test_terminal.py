"""What commands print in a real terminal: as wide as it is, and plain where that is asked for."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.conftest import ROOT

COMMANDS = "loop patterns list; loop cost rates; loop run session --dry-run; loop status"
IGNORED = ("NO_COLOR", "CI", "COLUMNS", "LINES")
"""What would change a terminal's looks: a terminal of its own size has none of them set."""


def printed(command: str, scratch: Path, columns: int, **own: str) -> str:
    """What a command prints in a terminal, with colours, once everything has been printed."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in IGNORED}
    env |= {f"LOOP_{name}": str(scratch / name.lower()) for name in ("SESSIONS", "CACHE", "STATE")}
    env |= {"TERM": "xterm-256color", "HOME": str(scratch), "LOOP_WATCH_PREEMPTION": "off"}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", **own}
    program = [shutil.which("bash") or "bash", "-c", command]
    running = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, env=env, cwd=ROOT)
    os.close(side)
    text = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # Linux says so when the last program that held the terminal has gone.
            break
        text += chunk
    running.wait()
    os.close(main)
    return text.decode(errors="replace")


@pytest.mark.slow
def test_lines_fit_the_terminal(tmp_path: Path) -> None:
    """80 columns, as a program that looks at its terminal prints them. `test_docs.py` does the same for help."""
    text = printed(COMMANDS, tmp_path, 80).replace("\r\n", "\n")
    last = [line.split("\r")[-1] for line in text.split("\n")]  # What a carriage return went over is gone.
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in last]
    assert 30 < len(plain)
    assert [] == [line for line in plain if len(line) > 80]
