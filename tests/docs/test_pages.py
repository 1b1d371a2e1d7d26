"""The commands of docs/ print what the pages show; output fits a real terminal."""

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

from loop.model.target import Checker, Generator, Modules, Signature, Target, Tolerance
from tests.conftest import ROOT
from tests.docs import shell

MODELS = {"generator": Generator, "signature": Signature, "modules": Modules, "tolerance.T": Tolerance}
LONG = pytest.mark.skipif("LOOP_DOCS" not in os.environ, reason="minutes: make docs-check")
PAGES = [
    pytest.param("money.md", 2),
    pytest.param("memory.md", 2),
    pytest.param("own-kernel.md", 3),
    pytest.param("tasks.md", 1),
    pytest.param("tutorial.md", 8, marks=LONG),
    pytest.param("sessions.md", 2, marks=LONG),
]
"""Each page with the outputs that it shows at least."""
SESSIONS_ELSEWHERE = ("money.md", "memory.md", "sessions.md")  # Pages whose sessions do not go beside their files.


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), PAGES)
def test_every_command_prints_what_the_page_says(page: str, least: int, tmp_path: Path) -> None:
    """In an empty folder; the page on sessions runs beside a copy of the bundled target."""
    folder = tmp_path / "reader"
    folder.mkdir()
    if page == "sessions.md":
        shutil.copytree(ROOT / "kernels", folder / "kernels")
    elsewhere = {"LOOP_SESSIONS": str(folder / "sessions")} if page in SESSIONS_ELSEWHERE else {}
    text = (ROOT / "docs" / page).read_text()
    complaints = "\n".join(shell.wrong(f"docs/{page}", text, folder, **elsewhere))
    assert not complaints, complaints
    assert least <= sum(block.language == "text" for block in shell.blocks(text))


def test_a_page_that_is_wrong_is_seen(tmp_path: Path) -> None:
    """Another word, or another end, is reported."""
    page = "```sh\necho one\n```\n```text\ntwo\n```\n```sh\nexit 3\n```\n```sh\necho $X\n```\n```text\nx\n```\n"
    assert ["p.md:1: exit 0\none\n", "p.md:7: exit 3\n"] == list(shell.wrong("p.md", page, tmp_path, X="x"))


def test_numbers_and_names_may_differ_and_words_may_not() -> None:
    """Masked numbers and names match; other words do not."""
    shown = "session 2026-11-21-221625-quick: x\n...\n  passed   build (0.44 s of 40 s): kept 9.6x\n"
    printed = "session 2027-01-02-030405-quick: x\na\nb\n  passed  build (2 min 05 s of 40 s): kept 12.1x\n"
    assert shell.agrees(printed, shown)
    assert not shell.agrees(printed.replace("kept", "taken back"), shown)
    assert not shell.agrees(printed + "more", shown)


def test_the_keys_of_the_page_on_tasks_are_those_of_a_manifest() -> None:
    """Each key of its table is a field."""
    cells = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "tasks.md").read_text(), re.MULTILINE)
    keys = [key for cell in cells for key in re.findall(r"`([\w.]+)`", cell)]
    assert "signature.updates" in keys
    for key in keys:
        owner, _, name = key.rpartition(".")
        models = [MODELS[owner]] if owner else [Target, Signature, Checker, Tolerance]
        assert any(name in model.model_fields for model in models), key


COMMANDS = "loop patterns list; loop cost rates; loop run session --dry-run; loop status"
IGNORED = ("NO_COLOR", "CI", "COLUMNS", "LINES")
"""Variables that change terminal output; the tests' terminal has none of them."""


def printed(command: str, scratch: Path, columns: int, **variables: str) -> str:
    """Output of a command in a terminal of this width, with colours."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in IGNORED}
    env |= {f"LOOP_{name}": str(scratch / name.lower()) for name in ("SESSIONS", "CACHE", "STATE")}
    env |= {"TERM": "xterm-256color", "HOME": str(scratch), "LOOP_WATCH_PREEMPTION": "off"}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", **variables}
    program = [shutil.which("bash") or "bash", "-c", command]
    running = subprocess.Popen(program, stdin=side, stdout=side, stderr=side, env=env, cwd=ROOT)
    os.close(side)
    text = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # Linux raises it when the last program has closed the terminal.
            break
        text += chunk
    running.wait()
    os.close(main)
    return text.decode(errors="replace")


@pytest.mark.slow
def test_lines_fit_the_terminal(tmp_path: Path) -> None:
    """80 columns, as a program that looks at its terminal prints them. `test_docs.py` does the same for help."""
    text = printed(COMMANDS, tmp_path, 80).replace("\r\n", "\n")
    last = [line.split("\r")[-1] for line in text.split("\n")]  # A carriage return overwrites the line.
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in last]
    assert 30 < len(plain)
    assert [] == [line for line in plain if len(line) > 80]
