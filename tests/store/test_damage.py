"""Damage of what is stored beside heads, records and samples: the index, reports, and journals that were cut."""

import random
from pathlib import Path

import pytest

from loop.base import remarks
from loop.base.errors import LoopError
from loop.model.record import Closed
from loop.store import database, index
from loop.store.journal import NAME
from loop.store.sessions import REPORT_SUMS, SessionFolder
from tests.makers import make_finished, make_record
from tests.store.folders import make_session


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    """A finished session whose record knows how long its journal was."""
    remarks.forget()
    steps = (make_finished("verify"), make_finished("measure", seconds=3.5), Closed(status="passed"))
    made = make_session(tmp_path / "s", "2026-01-02-000000-a", *steps, status="")
    made.write_record(make_record(made.head(), lines=2))
    return made


def test_a_flipped_bit_in_the_index_is_said_and_it_is_made_anew(
    folder: SessionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anywhere in its file: SQLite itself notices few of them."""
    root, draw = folder.path.parent, random.Random(1)
    whole = index.rows(root)
    path = database.file_of(root)
    for _ in range(20):
        data = bytearray(path.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        remarks.forget()
        assert whole == index.rows(root)
        assert f"{path}: damaged; made anew from the sessions" in capsys.readouterr().err


def test_an_index_that_a_kill_left_unfinished_goes_on(
    folder: SessionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite's own journal makes it whole; no checksum was noted yet."""
    root = folder.path.parent
    whole = index.rows(root)
    database.file_of(root).with_suffix(database.SUM).write_text(database.CHANGING)
    assert whole == index.rows(root)
    assert "" == capsys.readouterr().err


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


def test_a_damaged_session_is_named_by_whoever_adds_up(
    folder: SessionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums over sessions would be other figures without a word."""
    (folder.path / "record.json").write_text("{")
    assert [] == index.rows(folder.path.parent)
    assert "left out: " in capsys.readouterr().err


def test_damage_of_a_report_and_its_figures_is_found(folder: SessionFolder) -> None:
    """They are pages for people, with their checksums beside them; those of an older loop have none."""
    folder.write_report("# A report\n", {"figures/a.svg": "<svg/>\n"})
    assert "" == folder.damage_of_report()
    for name in ("report.md", "figures/a.svg", REPORT_SUMS):
        text = (folder.path / name).read_text()
        (folder.path / name).write_text(text[:-2] + "x\n")
        assert f"{folder.path / name}: damaged" in folder.damage_of_report()
        (folder.path / name).write_text(text)
    (folder.path / REPORT_SUMS).unlink()
    assert "" == folder.damage_of_report()
