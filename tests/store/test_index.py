"""The index agrees with the folders; each flipped bit and cut end of stored files is reported."""

import datetime
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.base import errors
from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.cli.sessions import list_sessions
from loop.model.measurement import Segment
from loop.model.money import Charge, Saving
from loop.model.record import Closed, Line, Opened
from loop.store import journal, sessions
from loop.store.journal import NAME
from loop.store.sessions import HEAD, RECORD, SessionFolder, session_row
from tests.makers import (
    NOON,
    make_bill,
    make_finished,
    make_measured,
    make_measurement,
    make_pattern,
    make_plan,
    make_record,
    make_session_head,
    make_speed,
)
from tests.store.folders import make_session
from tests.store.test_journal import EVENTS


def names(root: Path) -> list[str]:
    """Ids of the sessions that count."""
    return [row.id for row in sessions.rows(root)]


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
        pattern="baseline-first", source="a word",
        minutes=5.0, usd=4.2,
    )  # fmt: skip
    verdicts = [make_speed("w1", ratio=2.0), make_speed("w2", ratio=8.0)]
    bill = make_bill(charges=(charge,), savings=(saving,), usd=0.2)
    folder.write_record(make_record(folder.head(), verdicts, bill=bill))
    (row,) = sessions.rows(tmp_path)
    assert ("s0", "passed", 12.0, 0.2) == (row.id, row.status, row.seconds, row.usd)
    assert [("baseline-first", "passed", 5.0, True)] == [
        (run.pattern, run.status, run.seconds, run.whole) for run in row.runs
    ]
    assert ((charge,), (saving,)) == (row.charges, row.savings)
    assert pytest.approx({verdicts[0].variant: 4.0}) == row.ratios


def test_an_open_comparison_with_the_known_good_leaves_the_fastest_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open comparison with the known good keeps the fastest variant; one with the baseline does not."""
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path))
    folder = make_session(tmp_path, "s0", Opened(pid=1), make_finished("measure"))
    faster = make_speed("w1", ratio=2.0)
    same_build = make_speed("w1", "inconclusive", ratio=1.0, against="known_good")
    folder.write_record(make_record(folder.head(), [faster, same_build]))
    (row,) = sessions.rows(tmp_path)
    assert (f"{faster.variant} 2.00x", ()) == (list_sessions(None).sessions[0].fastest, row.inconclusive)
    folder.write_record(make_record(folder.head(), [faster, make_speed("w2", "inconclusive", ratio=1.0)]))
    (row,) = sessions.rows(tmp_path)
    assert (None, (faster.variant,)) == (list_sessions(None).sessions[0].fastest, row.inconclusive)


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Size and time of a file tell whether it changed."""
    make_some(tmp_path)
    sessions.rows(tmp_path)
    read: list[str] = []
    monkeypatch.setattr(
        "loop.store.sessions.compute_row", lambda path: read.append(path.name) or (None, "not read")
    )
    make_session(tmp_path, "s9", started=NOON + datetime.timedelta(hours=1))
    with open(tmp_path / "s1" / "journal.jsonl", "ab") as file:
        file.write(b"torn")
    sessions.rows(tmp_path)
    assert ["s1", "s9"] == read


def test_a_copied_folder_is_named_and_counted_once(tmp_path: Path) -> None:
    """The folder with the session's own name counts."""
    make_some(tmp_path, 2)
    shutil.copytree(tmp_path / "s1", tmp_path / "a copy")
    assert ["s0", "s1"] == names(tmp_path)
    (copy,) = [entry for entry in sessions.entries(tmp_path) if entry.row is None]
    assert ("a copy", f"{tmp_path / 'a copy'}: a copy of session s1") == (copy.folder, copy.problem)


def test_of_a_damaged_journal_the_lines_before_count(tmp_path: Path) -> None:
    """The record is whole: the session counts, and its damage is named with its line."""
    make_some(tmp_path, 1)
    path = tmp_path / "s0" / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:40], b""]))
    (row,) = sessions.rows(tmp_path)
    assert [("verify", "passed")] == [(step.step, step.status) for step in row.steps]
    assert not row.runs[0].whole
    (entry,) = sessions.entries(tmp_path)
    assert entry.row is not None
    assert entry.problem.endswith("journal.jsonl:3: damaged journal line")


def test_a_torn_index_is_made_anew(tmp_path: Path) -> None:
    """It holds nothing that the sessions' files do not hold."""
    make_some(tmp_path)
    sessions.rows(tmp_path)
    sessions.index_file(tmp_path).write_bytes(b"\xff" * 4096)
    assert ["s0", "s1", "s2"] == names(tmp_path)


def test_a_flipped_bit_never_changes_a_figure(tmp_path: Path) -> None:
    """A damaged row of the index is made again from its folder."""
    make_some(tmp_path)
    rows = sessions.rows(tmp_path)
    path = sessions.index_file(tmp_path)
    data = path.read_bytes()
    assert b'\\"seconds\\":12.0' in data
    path.write_bytes(data.replace(b'\\"seconds\\":12.0', b'\\"seconds\\":13.0'))
    assert rows == sessions.rows(tmp_path)
    assert data == path.read_bytes()


def test_a_run_that_a_failure_cut_short_is_not_a_whole_run() -> None:
    """A run cut by a failure gives no duration; a skipped step is no cut."""
    failed = make_finished("build", status="failed")
    idle = make_finished("measure", status="skipped", output={"ok": True, "message": "nothing to do"})
    skipped = make_finished("measure", status="skipped")
    head = make_session_head(plan=make_plan(make_pattern("baseline-first", ("build", "measure"))))
    for steps, whole in (
        ((failed, skipped), False),
        ((failed, idle), True),
        ((make_finished("build", status="skipped"), make_finished("measure", status="failed")), True),
        ((make_finished("build"), skipped), True),
        ((failed,), False),
    ):
        lines = [Line(seq=place, at=NOON, event=step) for place, step in enumerate(steps, start=1)]
        assert whole is session_row(head, None, lines).runs[0].whole


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    """A finished session whose record knows how long its journal was."""
    errors.PRINTED_REMARKS.clear()
    steps = (make_finished("verify"), make_finished("measure", seconds=3.5), Closed(status="passed"))
    session = make_session(tmp_path / "s", "2026-01-02-000000-a", *steps, status="")
    session.write_record(make_record(session.head(), lines=2))
    return session


def test_a_journal_cut_between_two_lines_is_named(
    folder: SessionFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """All remaining lines are whole: the record's count shows that some are missing."""
    path = folder.path / NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(LoopError, match=f"{NAME}:2: damaged: cut off, lines 2 to 2 are missing"):
        folder.lines()
    sessions.rows(folder.path.parent)
    assert f"{NAME}:2: damaged: cut off" in capsys.readouterr().err


FLIPS = 300
SAMPLED = "samples/1-measure-1-measure.json"


def sampled_session(root: Path) -> SessionFolder:
    """A session with samples."""
    step = make_finished(artifacts=(SAMPLED,))
    folder = make_session(root, "2026-11-22-120000-quick", *EVENTS, step)
    rows = [Segment(side="cpu", workload="B1", round=n, calls=3, seconds=(1e-6, 2.5e-6)) for n in range(9)]
    assert SAMPLED == folder.write_samples(Path(SAMPLED).stem, rows)
    return folder


def samples(folder: SessionFolder) -> object:
    """Its samples. Raises LoopError for a file whose checksum is another."""
    path = folder.path / SAMPLED
    return json.loads(sums.without_checksum(path, sums.read_regular(path)))["segments"]


READ: dict[str, Callable[[SessionFolder], object]] = {
    HEAD: SessionFolder.head,
    RECORD: SessionFolder.record,
    journal.NAME: SessionFolder.lines,
    SAMPLED: samples,
}


@pytest.mark.parametrize("name", READ)
def test_a_flipped_bit_changes_nothing_without_a_word(tmp_path: Path, name: str) -> None:
    """Either an error is raised, or the content read is the content written."""
    folder, draw = sampled_session(tmp_path), random.Random(1)
    whole, path = READ[name](folder), folder.path / name
    data = path.read_bytes()
    named_count = 0
    for place in draw.sample(range(8 * len(data)), FLIPS):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert whole == READ[name](folder), f"bit {place}: {damaged[place // 8 - 20 : place // 8 + 20]!r}"
        except LoopError:
            named_count += 1
    assert named_count > 0.9 * FLIPS
    path.write_bytes(data)
    assert whole == READ[name](folder)


def test_lines_of_a_journal_cannot_be_exchanged(tmp_path: Path) -> None:
    """Each line continues the checksum of the one before, so a fitting number is not enough."""
    first, second = (
        make_session(tmp_path, name, *EVENTS[:2], make_finished(seconds=s)) for name, s in (("a", 1.5), ("b", 7.5))
    )
    parts = [(folder.path / journal.NAME).read_bytes().splitlines(keepends=True) for folder in (first, second)]
    (first.path / journal.NAME).write_bytes(b"".join([*parts[0][:2], parts[1][2]]))
    with pytest.raises(LoopError, match=r"journal.jsonl:3: damaged journal line: its checksum does not match"):
        first.lines()
    row, problem = sessions.compute_row(first.path)
    assert (False, True) == (row is None, "does not match" in problem)


@pytest.mark.parametrize("name", [HEAD, RECORD, journal.NAME])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    """Reading a pipe or a device may never end."""
    folder = sampled_session(tmp_path)
    path = folder.path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(LoopError, match=f"{name}: cannot be read: it is no regular file"):
        READ[name](folder)


@pytest.mark.parametrize("name", [HEAD, RECORD, SAMPLED])
def test_an_end_cut_off_is_said(tmp_path: Path, name: str) -> None:
    """A cut at any place is an error, except of the last line end."""
    folder, draw = sampled_session(tmp_path), random.Random(2)
    path = folder.path / name
    data = path.read_bytes()
    for size in draw.sample(range(len(data.rstrip())), min(100, len(data) - 2)):
        path.write_bytes(data[:size])
        with pytest.raises(LoopError):
            READ[name](folder)
