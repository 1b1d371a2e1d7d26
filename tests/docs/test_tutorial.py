"""The tutorial does what it says, command by command."""

import os
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs import shell

WHOLE = pytest.mark.skipif("LOOP_DOCS" not in os.environ, reason="minutes of real sessions: make docs-check")


@pytest.mark.slow
@WHOLE
def test_every_command_of_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    """In an empty folder, from the first file to the kept change."""
    told = 0
    for block, expected, code, printed in shell.run((ROOT / "docs" / "tutorial.md").read_text(), tmp_path):
        wanted = expected.rest.removeprefix("exit=") if expected and expected.rest else "0"
        where = f"docs/tutorial.md:{block.line}"
        assert wanted == str(code), f"{where}\n{printed}"
        assert expected is None or shell.agrees(printed, expected.body), f"{where}\n{printed}"
        told += expected is not None
    assert 8 <= told


def test_numbers_and_names_may_differ_and_words_may_not() -> None:
    """What the comparison of outputs is worth."""
    told = "session 2026-11-21-221625-quick: x\n...\n  passed   build (0.44 s of 40 s): kept 9.6x\n"
    printed = "session 2027-01-02-030405-quick: x\na\nb\n  passed  build (2 min 05 s of 40 s): kept 12.1x\n"
    assert shell.agrees(printed, told)
    assert not shell.agrees(printed.replace("kept", "taken back"), told)
    assert not shell.agrees(printed + "more", told)
