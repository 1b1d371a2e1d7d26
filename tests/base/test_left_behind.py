"""Nothing of a command is left behind when it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT

WITHIN_S = 5.0
"""Seconds after which nothing may be left."""
WORK = """
import os, sys, time
from loop.base.processes import Child, end_children_at_exit
end_children_at_exit()
from loop.base.interrupts import raise_if_signalled, signals_as_flags
from loop.base.errors import Stopped
folder = {folder!r}
def done(name):
    open(os.path.join(folder, name + ".new"), "w").write(str(os.getpid()))
    os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))
{body}
"""
NASTY = {
    "one in a session of its own": "setsid sleep 60 & echo $! > $1; wait",
    "a daemon without environment": "(env -i setsid sleep 60 & echo $! > $1) & sleep 60",
    "one that ignores signals": "trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep 60) & echo $! > $1; wait",
}
KEEPS = """
child = Child(["sh", "-c", {shell!r}, "sh", os.path.join(folder, "pid")])
while not os.path.exists(os.path.join(folder, "pid")) or not open(os.path.join(folder, "pid")).read().strip():
    child.pump()
try:
    with signals_as_flags():
        done("worker")
        while True:
            child.pump()
            raise_if_signalled()
except Stopped:
    child.close()
    done("ended")
"""


def started(folder: Path, body: str) -> subprocess.Popen[bytes]:
    """A program that starts processes as a command does."""
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
def test_what_children_start_ends_with_a_command_that_is_interrupted(tmp_path: Path, shell: str) -> None:
    """Also a daemon that has no environment: orphans stay below the command."""
    with started(tmp_path, KEEPS.format(shell=shell)) as process:
        below = number(tmp_path / "pid")
        number(tmp_path / "worker")
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(60)
    assert (tmp_path / "ended").exists()
    assert gone(below)


def test_a_second_signal_ends_it_at_once_with_all_that_it_started(tmp_path: Path) -> None:
    """One second after the first."""
    deaf = "import time\nwith signals_as_flags():\n    done('worker')\n    time.sleep(60)"
    forgets = KEEPS.partition("try:")[0].format(shell=NASTY["one that ignores signals"])
    with started(tmp_path, forgets + deaf) as process:
        below = number(tmp_path / "pid")
        number(tmp_path / "worker")
        process.send_signal(signal.SIGINT)
        time.sleep(1.1)
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(10)
    assert gone(below)
