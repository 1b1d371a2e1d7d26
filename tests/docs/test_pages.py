"""The pages on sessions, money and memory do what they say, command by command."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import shell

WHOLE = pytest.mark.skipif("LOOP_DOCS" not in os.environ, reason="minutes of real sessions: make docs-check")


def wrong(page: str, folder: Path) -> str:
    """What a page says that is not so; sessions go to a folder of the test's own."""
    text = (ROOT / "docs" / page).read_text()
    return "\n".join(shell.wrong(f"docs/{page}", text, folder, LOOP_SESSIONS=str(folder / "sessions")))


@pytest.mark.slow
@pytest.mark.parametrize("page", ["money.md", "memory.md"])
def test_every_command_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    """In an empty folder, without a session of its own."""
    (tmp_path / "reader").mkdir()
    found = wrong(page, tmp_path / "reader")
    assert not found, found
    assert 2 <= sum(block.language == "sh" for block in shell.blocks((ROOT / "docs" / page).read_text()))


@pytest.mark.slow
@WHOLE
def test_every_session_of_the_page_ends_as_it_says(tmp_path: Path) -> None:
    """Right, wrong and out of budget, beside a copy of the bundled target."""
    (tmp_path / "reader").mkdir()
    shutil.copytree(ROOT / "kernels", tmp_path / "reader" / "kernels")
    found = wrong("sessions.md", tmp_path / "reader")
    assert not found, found


def test_a_page_that_is_wrong_is_seen(tmp_path: Path) -> None:
    """Another word, or another end."""
    page = "```sh\necho one\n```\n```text\ntwo\n```\n```sh\nexit 3\n```\n```sh\necho $X\n```\n```text\nx\n```\n"
    assert ["p.md:1: exit 0\none\n", "p.md:7: exit 3\n"] == list(shell.wrong("p.md", page, tmp_path, X="x"))
