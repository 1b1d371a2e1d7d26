"""The index: what the folders say and nothing else, whatever happens to its file, and with every damage named."""

import datetime
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loop.learning.statistics import of_patterns
from loop.model.index import SessionRow
from loop.model.money import Charge, Saving
from loop.model.record import Opened
from loop.store import database, index
from tests.makers import (
    NOON,
    make_bill,
    make_finished,
    make_measured,
    make_measurement,
    make_record,
    make_session_head,
    make_speed,
)
from tests.store.folders import make_session

READ = (
    "import sys; from pathlib import Path; from loop.store import index; print(len(index.rows(Path(sys.argv[1]))))"
)


def names(root: Path) -> list[str]:
    """Ids of the sessions that count."""
    return [row.id for row in index.rows(root)]


def make_some(root: Path, count: int = 3) -> None:
    """Sessions a minute apart, each with two steps."""
    for number in range(count):
        started = NOON + datetime.timedelta(minutes=number)
        timed = make_finished("measure", seconds=3.0 + number, output=make_measured(make_measurement()))
        steps = (make_finished("verify"), timed)
        make_session(root, f"s{number}", Opened(pid=1), *steps, started=started)


def test_a_row_says_what_the_session_found(tmp_path: Path) -> None:
    """Runs of patterns with the sum of their steps; charges, savings and mean ratios of its record."""
    folder = make_session(
        tmp_path, "s0", Opened(pid=1), make_finished("verify"), make_finished("measure", seconds=3.0)
    )
    charge = Charge(resource="engineer", rate="engineer", seconds=12.0, usd=0.2)
    saving = Saving(
        pattern="baseline-first", evidence="prior", source="a word",
        minutes=5.0, minutes_low=4.0, minutes_high=6.0, usd=4.2,
    )  # fmt: skip
    verdicts = [make_speed("w1", ratio=2.0), make_speed("w2", ratio=8.0)]
    bill = make_bill(charges=(charge,), savings=(saving,), usd=0.2)
    folder.write_record(make_record(folder.head(), verdicts, bill=bill))
    (row,) = index.rows(tmp_path)
    assert ("s0", "passed", 12.0, 0.2) == (row.id, row.status, row.seconds, row.usd)
    assert [("baseline-first", "passed", 5.0, True)] == [
        (run.pattern, run.status, run.seconds, run.whole) for run in row.runs
    ]
    assert ((charge,), (saving,)) == (row.charges, row.savings)
    assert pytest.approx({verdicts[0].variant: 4.0}) == row.ratios


def test_sums_are_those_of_the_rows(tmp_path: Path) -> None:
    """Of each pattern in each environment."""
    make_some(tmp_path)
    rows = index.rows(tmp_path)
    found = of_patterns({}, rows)["baseline-first"]
    assert (3, 3, 0, "s2") == (found.applied, found.passed, found.broken, found.last_session)
    assert [5.0, 6.0, 7.0] == [run.seconds for row in rows for run in row.runs]


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By size and time of the files."""
    make_some(tmp_path)
    index.rows(tmp_path)
    read: list[str] = []
    monkeypatch.setattr("loop.store.rows.row_of", lambda path: read.append(path.name) or (None, "not read"))
    make_session(tmp_path, "s9", started=NOON + datetime.timedelta(hours=1))
    with open(tmp_path / "s1" / "journal.jsonl", "ab") as file:
        file.write(b"torn")
    index.rows(tmp_path)
    assert ["s1", "s9"] == read


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    """The folders are the truth."""
    make_some(tmp_path)
    assert ["s0", "s1", "s2"] == names(tmp_path)
    shutil.rmtree(tmp_path / "s1")
    assert ["s0", "s2"] == names(tmp_path)


def test_a_session_that_goes_on_is_read_again(tmp_path: Path) -> None:
    """An open session becomes one that has ended."""
    folder = make_session(tmp_path, "s0", Opened(pid=1), status="")
    assert [None] == [row.status for row in index.rows(tmp_path)]
    folder.write_record(make_record(folder.head(), status="failed"))
    assert ["failed"] == [row.status for row in index.rows(tmp_path)]


def test_the_last_sessions_of_one_target(tmp_path: Path) -> None:
    """Oldest first."""
    make_some(tmp_path)
    make_session(tmp_path, "t0", target="other", started=NOON + datetime.timedelta(minutes=1, seconds=30))
    assert ["s1", "s2"] == [row.id for row in index.rows(tmp_path, last=2, target="attention")]
    assert ["t0", "s2"] == [row.id for row in index.rows(tmp_path, last=2)]


def test_order_is_by_start_whatever_the_names_say(tmp_path: Path) -> None:
    """A clock that was set back sorts a session before its predecessors; nothing else comes of it."""
    make_session(tmp_path, "2026-b", started=NOON)
    make_session(tmp_path, "2026-c", started=NOON - datetime.timedelta(days=400))
    make_session(tmp_path, "2026-a", started=NOON + datetime.timedelta(days=4000))
    assert ["2026-c", "2026-b", "2026-a"] == names(tmp_path)


def test_a_copied_folder_is_named_and_counted_once(tmp_path: Path) -> None:
    """That of the session's own name counts, whatever was copied when."""
    make_some(tmp_path, 2)
    shutil.copytree(tmp_path / "s1", tmp_path / "a copy")
    assert ["s0", "s1"] == names(tmp_path)
    assert [("a copy", "a copy of session s1", False)] == [
        (one.folder, one.reason, one.counted) for one in index.read(tmp_path)[1]
    ]
    assert 2 == of_patterns({}, index.rows(tmp_path))["baseline-first"].passed
    shutil.rmtree(tmp_path / "s1")
    assert ["s0", "s1"] == names(tmp_path)
    assert [] == index.damaged(tmp_path)


def test_a_damaged_record_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """With its file."""
    make_some(tmp_path)
    (tmp_path / "s1" / "record.json").write_text('{"format": 1, "head"')
    assert ["s0", "s2"] == names(tmp_path)
    (found,) = index.damaged(tmp_path)
    assert "record.json: damaged" in found.reason
    assert ("s1", False) == (found.folder, found.counted)


def test_of_a_damaged_journal_the_lines_before_count(tmp_path: Path) -> None:
    """The record is whole: the session counts, and its damage is named with its line."""
    make_some(tmp_path, 1)
    path = tmp_path / "s0" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:40], b""]))
    (row,) = index.rows(tmp_path)
    assert [("verify", "passed")] == [(step.step, step.status) for step in row.steps]
    assert not row.runs[0].whole
    (found,) = index.damaged(tmp_path)
    assert found.counted
    assert found.reason.endswith("journal.jsonl:3: damaged journal line")


def test_a_torn_last_line_is_no_damage(tmp_path: Path) -> None:
    """A kill leaves one; what was acknowledged is there."""
    make_some(tmp_path, 1)
    with open(tmp_path / "s0" / "journal.jsonl", "ab") as file:
        file.write(b'{"format": 1, "seq": 4, "at"')
    assert ["s0"] == names(tmp_path)
    assert [] == index.damaged(tmp_path)


@pytest.mark.parametrize(("number", "whose"), [(0, "an older loop"), (7, "a newer loop")])
def test_another_format_is_refused_by_name(number: int, whose: str, tmp_path: Path) -> None:
    """Whatever else such a file may hold; the others go on."""
    make_some(tmp_path, 2)
    path = tmp_path / "s0" / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": number, "new": 1}))
    assert ["s1"] == names(tmp_path)
    (found,) = index.damaged(tmp_path)
    assert f"{path}: of format {number}, by {whose}; this one reads format 1" == found.reason


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_torn_index_is_made_anew(content: bytes, tmp_path: Path) -> None:
    """It is derived."""
    make_some(tmp_path)
    index.rows(tmp_path)
    database.file_of(tmp_path).write_bytes(content)
    assert ["s0", "s1", "s2"] == names(tmp_path)


def test_a_bit_flip_never_shows_a_session_that_is_not_there(tmp_path: Path) -> None:
    """Pages overwritten in the middle of the file are noticed, and it is made anew."""
    make_some(tmp_path, 30)
    expected = names(tmp_path)
    path = database.file_of(tmp_path)
    whole = path.read_bytes()
    for place in range(4096, len(whole) - 512, 4096):
        path.write_bytes(whole[:place] + b"\xaa" * 512 + whole[place + 512 :])
        assert expected == names(tmp_path), place


def test_an_index_of_another_format_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a newer loop wrote."""
    make_some(tmp_path)
    index.rows(tmp_path)
    monkeypatch.setattr(database, "FORMAT", "of the future")
    assert ["s0", "s1", "s2"] == names(tmp_path)
    with sqlite3.connect(database.file_of(tmp_path)) as file:
        assert [("of the future",)] == file.execute("SELECT format FROM about").fetchall()


def test_without_a_place_for_the_index_it_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be made."""
    make_some(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOOP_CACHE", str(tmp_path / "file"))
    assert ["s0", "s1", "s2"] == names(tmp_path)


def test_a_folder_without_sessions_says_nothing(tmp_path: Path) -> None:
    """Nor does one that is not there."""
    (tmp_path / "plans").mkdir()
    assert [] == names(tmp_path)
    assert [] == names(tmp_path / "none")


@pytest.mark.slow
def test_several_processes_agree(tmp_path: Path) -> None:
    """Eight make the index at once, while sessions are still being written."""
    make_some(tmp_path, 40)
    command = [sys.executable, "-c", READ, str(tmp_path)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for number in range(40, 50):
        make_session(tmp_path, f"s{number}", started=NOON + datetime.timedelta(minutes=number))
    counts = [int(reader.communicate()[0]) for reader in readers]
    assert all(40 <= count <= 50 for count in counts), counts
    assert 50 == len(names(tmp_path))


@pytest.mark.slow
def test_a_kill_while_the_index_is_made_loses_nothing(tmp_path: Path) -> None:
    """At ten moments; the next one finds every session."""
    make_some(tmp_path, 60)
    for number in range(10):
        index.rows(tmp_path / "none")
        database.file_of(tmp_path).unlink(missing_ok=True)
        maker = subprocess.Popen([sys.executable, "-c", READ, str(tmp_path)], stdout=subprocess.DEVNULL)
        time.sleep(0.1 + 0.05 * number)
        os.kill(maker.pid, signal.SIGKILL)
        maker.wait()
        assert 60 == len(names(tmp_path))


def test_every_field_of_a_row_comes_back(tmp_path: Path) -> None:
    """What was read from the folders and what the index gives are the same."""
    from loop.store.rows import row_of

    make_some(tmp_path)
    read: list[SessionRow | None] = [row_of(tmp_path / name)[0] for name in ("s0", "s1", "s2")]
    index.rows(tmp_path)
    assert read == index.rows(tmp_path)


def test_a_prediction_is_part_of_the_row(tmp_path: Path) -> None:
    """Whether it held is asked later."""
    known = {"seconds": 10.0, "low_s": 8.0, "high_s": 13.0, "usd": 0.1, "low_usd": 0.08, "high_usd": 0.13}
    head = make_session_head(predicted=known)
    make_session(tmp_path, "s0", Opened(pid=1), make_finished("verify"), make_finished("measure"), predicted=known)
    (row,) = index.rows(tmp_path)
    assert head.predicted == row.predicted
    assert row.complete


def test_an_index_that_an_older_loop_wrote_is_made_anew(tmp_path: Path) -> None:
    """It had a table for each part of a row."""
    make_some(tmp_path)
    path = database.file_of(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE about (format TEXT, root TEXT)")
        file.execute("INSERT INTO about VALUES ('6 0.1.0', ?)", (str(tmp_path),))
        file.execute("CREATE TABLE sessions (folder TEXT PRIMARY KEY, stamp TEXT) WITHOUT ROWID")
        file.execute("CREATE TABLE bodies (folder TEXT PRIMARY KEY, row TEXT) WITHOUT ROWID")
    assert ["s0", "s1", "s2"] == names(tmp_path)
