"""Nothing of a command is left behind, whichever of its two processes is killed, and whatever its children do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from loop.base import cgroups
from loop.base.processes import OWNER, name_of
from tests.conftest import ROOT

WITHIN_S = 5.0
"""Seconds after which nothing may be left."""
WORK = """
import os, sys, time
from loop.base.supervisor import supervise
supervise()
from loop.base.processes import Child
from loop.base.interrupts import check, flagged
from loop.base.errors import Stopped
folder = {folder!r}
def done(name):
    open(os.path.join(folder, name + ".new"), "w").write(str(os.getpid()))
    os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))
{body}
"""
NASTY = {
    "a grandchild": "sleep 60 & echo $! > $1; wait",
    "one in a session of its own": "setsid sleep 60 & echo $! > $1; wait",
    "a daemon": "(setsid sleep 60 & echo $! > $1) & wait",
    "a daemon without environment": "(env -i setsid sleep 60 & echo $! > $1) & sleep 60",
    "one that ignores signals": "trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep 60) & echo $! > $1; wait",
    "one that nobody waits for": "nohup setsid env -i sh -c 'sleep 60 & echo $! > '$1'; wait' & sleep 60",
}
KEEPS = """
child = Child(["sh", "-c", {shell!r}, "sh", os.path.join(folder, "pid")])
while not os.path.exists(os.path.join(folder, "pid")) or not open(os.path.join(folder, "pid")).read().strip():
    child.pump()
try:
    with flagged():
        done("worker")
        while True:
            child.pump()
            check()
except Stopped:
    child.close()
    done("ended")
"""


def started(folder: Path, body: str) -> subprocess.Popen[bytes]:
    """A supervised program."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = WORK.format(folder=str(folder), body=body)
    return subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE)


def number(path: Path) -> int:
    """A process number out of a file, once it is there."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if path.is_file() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path} was never written")


def gone(pid: int) -> bool:
    """Whether a process has ended within the time."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("shell", NASTY.values(), ids=NASTY)
@pytest.mark.parametrize("killed", ["worker", "supervisor"])
@pytest.mark.slow
def test_what_children_start_ends_with_either_process(tmp_path: Path, shell: str, killed: str) -> None:
    """By SIGKILL, which nobody can prepare for."""
    with started(tmp_path, KEEPS.format(shell=shell)) as process:
        worker, below = number(tmp_path / "worker"), number(tmp_path / "pid")
        os.kill(worker if killed == "worker" else process.pid, signal.SIGKILL)
        process.wait(60)
        assert gone(worker)
        assert gone(below)
    assert -signal.SIGKILL == process.returncode
    assert (killed == "supervisor") == (tmp_path / "ended").exists(), "told, it ends in good order"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_reach_the_one_who_works(tmp_path: Path, name: str) -> None:
    """From whoever knows the first process only."""
    with started(tmp_path, KEEPS.format(shell=NASTY["a daemon"])) as process:
        below = number(tmp_path / "pid")
        number(tmp_path / "worker")
        process.send_signal(signal.Signals[name])
        assert 0 == process.wait(60)
    assert (tmp_path / "ended").exists()
    assert gone(below)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(75)", 75),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_it_ends_as_the_one_who_worked(tmp_path: Path, body: str, code: int) -> None:
    """Its exit status, or its signal."""
    with started(tmp_path, body) as process:
        assert code == process.wait(60)


def test_who_works_is_not_stopped_for_ever(tmp_path: Path) -> None:
    """A kernel may stop its parent's process: a terminal stops both."""
    with started(tmp_path, "done('worker'); time.sleep(1.0); sys.exit(7)") as process:
        os.kill(number(tmp_path / "worker"), signal.SIGSTOP)
        assert 7 == process.wait(60)


@pytest.mark.slow
def test_what_both_left_is_ended_by_the_next_command(tmp_path: Path) -> None:
    """And named. A process of a loop that still runs stays.

    Any command ends it, also that of another test which runs beside this one: one of a few is ours.
    """
    mine = {**os.environ, OWNER: name_of(os.getpid())}
    with subprocess.Popen(["sleep", "60"], env=mine) as kept:
        told = [left_and_ended(tmp_path / str(attempt)) for attempt in range(5)]
        assert any(told)
        assert kept.poll() is None
        kept.kill()


@pytest.fixture
def may_make() -> None:
    """A cgroup below this process's own."""
    here = cgroups.own()
    if here is None or not os.access(here / cgroups.MEMBERS, os.W_OK):
        pytest.skip("no cgroup of version 2 may be made here")


@pytest.mark.parametrize("shell", NASTY.values(), ids=NASTY)
@pytest.mark.usefixtures("may_make")
@pytest.mark.slow
def test_a_cgroup_holds_what_both_left_whatever_it_did(tmp_path: Path, shell: str) -> None:
    """Also what kept no environment: the next command ends it."""
    with started(tmp_path, KEEPS.format(shell=shell)) as process:
        worker, below = number(tmp_path / "worker"), number(tmp_path / "pid")
        room = cgroups.room_of(worker)
        assert room is not None
        assert {worker, below} <= set(cgroups.members(room))
        process.send_signal(signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        process.kill()
        process.wait(60)
    with started(tmp_path, "sys.exit(0)") as following:
        following.communicate(timeout=60)
    assert gone(below)
    assert not room.exists()


@pytest.mark.usefixtures("may_make")
def test_a_cgroup_goes_with_its_command(tmp_path: Path) -> None:
    """Nothing is left in the system's tree."""
    with started(tmp_path, "done('worker'); time.sleep(0.5); sys.exit(0)") as process:
        room = cgroups.room_of(number(tmp_path / "worker"))
        assert room is not None
        assert room.is_dir()
        assert 0 == process.wait(60)
    assert not room.exists()


def left_and_ended(folder: Path) -> bool:
    """Whether the next command names what a killed one left; that it is gone is seen in any case."""
    folder.mkdir()
    with started(folder, KEEPS.format(shell=NASTY["one that ignores signals"])) as process:
        worker, below = number(folder / "worker"), number(folder / "pid")
        process.send_signal(signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        process.kill()
        process.wait(60)
    with started(folder, "sys.exit(0)") as following:
        said = following.communicate(timeout=60)[1].decode()
    assert gone(below)
    return f"({below})" in said
