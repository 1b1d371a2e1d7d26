"""Damage of what is stored beside heads, records and samples: records, and journals that were cut."""

from pathlib import Path

import pytest

from loop.base import errors
from loop.base.errors import LoopError
from loop.model.record import Closed
from loop.store import index
from loop.store.journal import NAME
from loop.store.sessions import SessionFolder
from tests.makers import make_finished, make_record
from tests.store.folders import make_session


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    """A finished session whose record knows how long its journal was."""
    errors.forget()
    steps = (make_finished("verify"), make_finished("measure", seconds=3.5), Closed(status="passed"))
    made = make_session(tmp_path / "s", "2026-01-02-000000-a", *steps, status="")
    made.write_record(make_record(made.head(), lines=2))
    return made


def test_a_journal_cut_between_two_lines_is_named(
    folder: SessionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line that is left is whole: the record tells that there were more."""
    path = folder.path / NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(LoopError, match=f"{NAME}:2: damaged: cut off, lines 2 to 2 are missing"):
        folder.lines()
    index.rows(folder.path.parent)
    assert f"{NAME}:2: damaged: cut off" in capsys.readouterr().err
