"""Session folders: never two of one name, found by what a person types, read with their damage named."""

import datetime
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loop.base.documents.sums import with_checksum
from loop.base.errors import LoopError
from loop.model.record import Closed, Event, Line, Opened
from loop.store import sessions
from loop.store.sessions import create_session, find_session, list_sessions, running_seconds
from tests.makers import NOON, make_finished, make_session_head
from tests.store.folders import make_session


def make_line(second: float, event: Event) -> Line:
    """A journal line so many seconds after noon."""
    return Line(seq=1, at=NOON + datetime.timedelta(seconds=second), event=event)


def test_two_sessions_never_share_a_folder(tmp_path: Path) -> None:
    """Twenty that begin at once get twenty folders."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create_session(tmp_path, "quick", NOON), range(20)))
    assert 20 == len({folder.id for folder in made})
    assert all(folder.path.is_dir() for folder in made)


def test_sessions_come_oldest_first(tmp_path: Path) -> None:
    """The tenth of one second comes after the second; what is no session is passed over."""
    names = ["2026-01-01-000000-b", "2026-01-01-000000-b-2", "2026-01-01-000000-b-10", "2026-02-01-000000-a"]
    for name in reversed(names):
        make_session(tmp_path, name)
    (tmp_path / "plans").mkdir()
    (tmp_path / "no-head").mkdir()
    (tmp_path / "2025.txt").write_text("a file")
    assert names == [folder.id for folder in list_sessions(tmp_path)]
    assert names[-1] == find_session(tmp_path, "last").id


def test_a_session_that_cannot_be_begun_leaves_no_folder(tmp_path: Path) -> None:
    """There is nothing to go on with."""
    folder = create_session(tmp_path, "quick", NOON)
    (folder.path / sessions.LOCK).mkdir()
    with pytest.raises(LoopError, match="cannot be written"), folder.locked_with_head(make_session_head()):
        raise AssertionError
    assert not folder.path.exists()


def test_a_session_is_found_by_its_beginning(tmp_path: Path) -> None:
    """The whole name wins over a longer one that begins alike."""
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
    ("text", "said"),
    [
        ('{"format": 1', "record.json: damaged: its checksum does not match"),
        (with_checksum('{"format": 7}'), "record.json: damaged, or of another format: "),
    ],
)
def test_a_damaged_record_is_named(text: str, said: str, tmp_path: Path) -> None:
    """The file, and the first thing wrong with it."""
    folder = make_session(tmp_path, "2026-01-01-000000-a")
    (folder.path / sessions.RECORD).write_text(text)
    with pytest.raises(LoopError) as caught:
        folder.record()
    assert said in caught.value.message
