"""One holder at a time, and the system lets go for the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loop.base.locks import LockHeld, is_locked, locked, locked_temporary_folder
from tests.conftest import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from loop.base.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    """Also within one process; the error names the first."""
    with locked(tmp_path / "lock"), pytest.raises(LockHeld, match=f"held by process {os.getpid()}"):
        locked(tmp_path / "lock").__enter__()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """While it lives it is named; the moment it is killed the lock is free."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert b"held\n" == holder.stdout.readline()
        with pytest.raises(LockHeld) as caught:
            locked(tmp_path / "lock").__enter__()
        holder.send_signal(signal.SIGKILL)
    assert f"process {holder.pid}" == caught.value.holder
    with locked(tmp_path / "lock"):
        pass


def test_whether_a_lock_is_held_can_be_asked(tmp_path: Path) -> None:
    """Without making a file, writing to it or keeping it."""
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked(path):
        before = path.read_text()
        assert is_locked(path)
        assert before == path.read_text()
    assert not is_locked(path)
    with locked(path):
        pass


MAKER = """
import sys, time
from pathlib import Path
from loop.base.locks import locked_temporary_folder
with locked_temporary_folder(Path(sys.argv[1]), ".making-") as made:
    (made / "half").write_text("of it")
    print(made, flush=True)
    time.sleep(60)
"""


def test_a_folder_is_swept_once_its_owner_was_killed(tmp_path: Path) -> None:
    """The next owner removes it; folders of living owners and other folders stay."""
    (tmp_path / "finished-build").mkdir()
    command = [sys.executable, "-c", MAKER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as maker:
        assert maker.stdout is not None
        killed_folder = Path(maker.stdout.readline().strip())
        with (
            locked_temporary_folder(tmp_path, ".making-") as first,
            locked_temporary_folder(tmp_path, ".making-") as second,
        ):
            assert (True, True, True) == ((killed_folder / "half").exists(), first.exists(), second.exists())
        maker.send_signal(signal.SIGKILL)
    assert (killed_folder / "half").exists()
    with locked_temporary_folder(tmp_path, ".making-"):
        assert not killed_folder.exists()
    assert (tmp_path / "finished-build").exists()


@pytest.mark.parametrize("text", [b"", b"garbage", b"[1]", b"\xff\xfe", b'{"pid": '])
def test_a_damaged_lock_file_is_no_obstacle(text: bytes, tmp_path: Path) -> None:
    """The file's content is only information for people; the lock is the system's."""
    path = tmp_path / "lock"
    path.write_bytes(text)
    with locked(path):
        path.write_bytes(text)
        with pytest.raises(LockHeld, match="held by another process"):
            locked(path).__enter__()
