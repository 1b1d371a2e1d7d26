"""The journal: what was acknowledged stays, what was torn off is dropped, what is damaged is named."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.model.record import Closed, Event, Opened, Started
from loop.store.journal import Journal, read_journal
from tests.conftest import ROOT
from tests.makers import make_finished

WRITER = """
import sys
from pathlib import Path
from loop.model.record import Opened
from loop.store.journal import Journal
journal = Journal(Path(sys.argv[1]))
while True:
    print(journal.append(Opened(pid=1)).seq, flush=True)
"""
"""Says the number of each line once it is on disk, without end."""


def make_started(step: str = "verify", **fields: int) -> Started:
    """A step that has begun."""
    return Started(run=1, pattern="baseline-first", step=step, title=step, index=1, of=2, budget_s=5.0, **fields)


EVENTS: tuple[Event, ...] = (
    Opened(pid=7),
    make_started(),
    make_finished(message="größer als α", output={"ok": True, "rows": [1, 2.5, None]}),
    Closed(status="passed", reason="all steps passed"),
)


def write(path: Path, events: Sequence[Event] = EVENTS) -> Path:
    """A journal of these events."""
    made = Journal(path)
    for event in events:
        made.append(event)
    made.close()
    return path


def test_every_truncation_keeps_the_lines_before_it(tmp_path: Path) -> None:
    """Cut anywhere, all lines that were whole are read, and the next append starts a fresh line."""
    data = write(tmp_path / "j").read_bytes()
    path = tmp_path / "cut"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        assert list(EVENTS[:whole]) == [line.event for line in read_journal(path)]
        if length % 23 == 0:
            assert whole + 1 == len(read_journal(write(path, [Opened(pid=9)])))


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
        read_journal(path)
    assert f"{path}:2: damaged journal line" == caught.value.message
    assert "the 1 lines before it are whole" in (caught.value.hint or "")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused append is an error with a hint, and the next one stands on a line of its own."""
    made = Journal(write(tmp_path / "j"))

    def refuse(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(LoopError, match="cannot be written: No space left on device") as caught:
            made.append(Opened(pid=9))
    assert "free some space" in (caught.value.hint or "")
    made.append(Opened(pid=10))
    made.close()
    assert [*EVENTS, Opened(pid=10)] == [line.event for line in read_journal(tmp_path / "j")]


def test_no_acknowledged_line_is_lost_to_a_kill(tmp_path: Path) -> None:
    """Whatever number was said before SIGKILL can be read after it."""
    path = tmp_path / "j"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout if line.endswith("\n")]
    assert said[-1] <= len(read_journal(path)) <= said[-1] + 1


def test_a_missing_line_is_noticed(tmp_path: Path) -> None:
    """Numbers have no gaps: a line that was cut out shows."""
    path = write(tmp_path / "j")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    with pytest.raises(LoopError, match=":2: expected line 2, got 3"):
        read_journal(path)


def test_a_line_is_written_to_disk_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`append` syncs once a line."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write(tmp_path / "j")
    assert len(EVENTS) == len(synced)
