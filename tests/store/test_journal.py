"""Session folders and journals: acknowledged lines stay, and damage is reported."""

import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loop.base.documents.sums import with_checksum
from loop.base.errors import LoopError
from loop.model.record import Closed, Event, Line, Opened, Started
from loop.store import sessions
from loop.store.journal import Journal, checked_lines
from loop.store.sessions import create_session, find_session, list_sessions, running_seconds
from tests.conftest import ROOT
from tests.makers import NOON, make_finished, make_session_head
from tests.store.folders import make_session

WRITER = """
import sys
from pathlib import Path
from loop.model.record import Opened
from loop.store.journal import Journal
journal = Journal(Path(sys.argv[1]))
while True:
    print(journal.append(Opened(pid=1)).seq, flush=True)
"""
"""Appends lines endlessly, and prints each number once the line is on disk."""


EVENTS: tuple[Event, ...] = (
    Opened(pid=7),
    Started(run=1, pattern="baseline-first", step="verify", title="verify", index=1, of=2, budget_s=5.0),
    make_finished(message="größer als α", output={"ok": True, "rows": [1, 2.5, None]}),
    Closed(status="passed", reason="all steps passed"),
)


def write(path: Path, events: Sequence[Event] = EVENTS) -> Path:
    log = Journal(path)
    for event in events:
        log.append(event)
    log.close()
    return path


def test_every_truncation_keeps_the_lines_before_it(tmp_path: Path) -> None:
    """Cut anywhere, all lines that were whole are read, and the next append starts a fresh line."""
    data = write(tmp_path / "j").read_bytes()
    path = tmp_path / "cut"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert list(EVENTS[:whole]) == [line.event for line, _ in checked_lines(path)]
        if length % 23 == 0:
            assert whole + 1 == len(list(checked_lines(write(path, [Opened(pid=9)]))))


@pytest.mark.parametrize(
    "damage",
    [b"", b"\xff\xfe\x00", b"{}", b"[1]", b"3", b'{"format": 2, "seq": 2}', b"[" * 5000, b"nothing like it"],
)
def test_a_damaged_line_is_named(damage: bytes, tmp_path: Path) -> None:
    """File and line, and how many lines before it are whole."""
    path = write(tmp_path / "j")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], damage, *lines[2:]]) + b"\n")
    with pytest.raises(LoopError) as caught:
        list(checked_lines(path))
    assert f"{path}:2: damaged journal line" == caught.value.message
    assert "1 lines before it are whole" in (caught.value.hint or "")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed append is an error with a hint; the next append begins a new line."""
    log = Journal(write(tmp_path / "j"))

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(LoopError, match="cannot be written: No space left on device") as caught:
            log.append(Opened(pid=9))
    assert "free some space" in (caught.value.hint or "")
    log.append(Opened(pid=10))
    log.close()
    assert [*EVENTS, Opened(pid=10)] == [line.event for line, _ in checked_lines(tmp_path / "j")]


def test_no_acknowledged_line_is_lost_to_a_kill(tmp_path: Path) -> None:
    """Every acknowledged number can be read after SIGKILL."""
    path = tmp_path / "j"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
        assert writer.stdout is not None
        numbers = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        numbers += [int(line) for line in writer.stdout if line.endswith("\n")]
    assert numbers[-1] <= len(list(checked_lines(path))) <= numbers[-1] + 1


def test_a_missing_line_is_noticed(tmp_path: Path) -> None:
    """Numbers have no gaps: a line that was cut out shows."""
    path = write(tmp_path / "j")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(LoopError, match=":2: expected line 2, got 3"):
        list(checked_lines(path))


def test_a_line_is_written_to_disk_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`append` syncs once a line."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write(tmp_path / "j")
    assert len(EVENTS) == len(synced)


def make_line(second: float, event: Event) -> Line:
    """A journal line this many seconds after noon."""
    return Line(seq=1, at=NOON + datetime.timedelta(seconds=second), event=event)


def test_two_sessions_never_share_a_folder(tmp_path: Path) -> None:
    """Twenty that begin at once get twenty folders."""
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: create_session(tmp_path, "quick", NOON), range(20)))
    assert 20 == len({folder.id for folder in folders})
    assert all(folder.path.is_dir() for folder in folders)


def test_sessions_come_oldest_first(tmp_path: Path) -> None:
    """Numbers of sessions of one second sort as numbers; other folders are skipped."""
    names = ["2026-01-01-000000-b", "2026-01-01-000000-b-2", "2026-01-01-000000-b-10", "2026-02-01-000000-a"]
    for name in reversed(names):
        make_session(tmp_path, name)
    (tmp_path / "plans").mkdir()
    (tmp_path / "no-head").mkdir()
    (tmp_path / "2025.txt").write_text("a file")
    assert names == [folder.id for folder in list_sessions(tmp_path)]
    assert names[-1] == find_session(tmp_path, "last").id


def test_a_session_that_cannot_be_begun_leaves_no_folder(tmp_path: Path) -> None:
    """No folder is left that could not be resumed."""
    folder = create_session(tmp_path, "quick", NOON)
    (folder.path / sessions.LOCK).mkdir()
    with pytest.raises(LoopError, match="cannot be written"), folder.locked_with_head(make_session_head()):
        raise AssertionError
    assert not folder.path.exists()


def test_a_session_is_found_by_its_beginning(tmp_path: Path) -> None:
    """A whole name wins over a longer name with the same beginning."""
    for name in ("2026-01-01-000000-a", "2026-01-01-000000-a-2", "2026-03-01-000000-a"):
        make_session(tmp_path, name)
    assert "2026-03-01-000000-a" == find_session(tmp_path, "2026-03").id
    assert "2026-01-01-000000-a" == find_session(tmp_path, "2026-01-01-000000-a").id


def test_wall_time_leaves_out_the_night_between_two_walks() -> None:
    """Ten seconds, eight hours of rest, five seconds: fifteen."""
    night = 8 * 3600.0
    lines = [
        make_line(0, Opened(pid=1)),
        make_line(8, make_finished("a", seconds=7.0)),
        make_line(10, Closed(status="aborted")),
        make_line(night, Opened(pid=2, resumed=True)),
        make_line(night + 5, make_finished("b", seconds=4.0)),
    ]
    assert 15.0 == running_seconds(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1', "record.json: damaged: its checksum does not match"),
        (with_checksum('{"format": 7}'), "record.json: damaged, or of another format: "),
    ],
)
def test_a_damaged_record_is_named(text: str, message: str, tmp_path: Path) -> None:
    """The file, and the first thing wrong with it."""
    folder = make_session(tmp_path, "2026-01-01-000000-a")
    (folder.path / sessions.RECORD).write_text(text)
    with pytest.raises(LoopError) as caught:
        folder.record()
    assert message in caught.value.message
