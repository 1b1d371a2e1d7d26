"""Children end at their limit, signals are noted, and a command leaves no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from loop.base import processes
from loop.base.errors import ExitCode, LoopError, Stopped
from loop.base.processes import (
    SIGNALS,
    CappedStream,
    Completed,
    Tick,
    python_path,
    raise_if_signalled,
    run,
    run_side_by_side,
    run_to_end,
    signals_as_flags,
    store_signal_number,
)
from tests.conftest import ROOT


def shell(script: str, *arguments: str, limit_s: float = 20.0, env: dict[str, str] | None = None) -> Completed:
    """A shell script, run to its end."""
    return run_to_end(run(["/bin/sh", "-c", script, "sh", *arguments], limit_s=limit_s, env=env))


def test_a_long_stream_keeps_its_head_and_its_tail() -> None:
    """The first quarter and the last three quarters of the cap, and how much lay between."""
    stream = CappedStream(max_bytes=8)
    for byte in b"abcdefghijklmnop":
        stream.add(bytes([byte]))
    assert (8, "ab\n... 8 bytes left out ...\nklmnop") == (stream.dropped_bytes, stream.text)


def test_a_command_over_its_limit_is_killed() -> None:
    """It ends soon after the limit, and the result says that it was killed."""
    done = shell("sleep 60", limit_s=0.2)
    assert (True, False, -signal.SIGKILL) == (done.timed_out, done.succeeded, done.code)
    assert done.ending.startswith("killed after 0.")
    assert 5 > done.seconds


@pytest.mark.parametrize(
    "script",
    ["trap '' TERM INT HUP; echo $$ >$1; while :; do sleep 60; done", "setsid sleep 60 & echo $! >$1; wait"],
    ids=["ignores signals", "setsid"],
)
def test_nasty_children_are_gone_after_the_limit(script: str, tmp_path: Path) -> None:
    """Ignoring signals, hiding in the background or leaving the group does not help."""
    done = shell(script, str(tmp_path / "pid"), limit_s=0.4)
    assert done.timed_out
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text())), "not even a zombie"


def test_a_missing_command_is_said_with_what_to_do() -> None:
    """The message names the command, the hint says what to check."""
    with pytest.raises(LoopError, match="cannot start no-such-command-here: No such file") as caught:
        run_to_end(run(["no-such-command-here"], limit_s=1))
    assert "check that `no-such-command-here` is installed and on the PATH" == caught.value.hint


def test_a_secret_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child sees the allow-listed variables, those it is given, and no other."""
    monkeypatch.setenv("CLOUD_SECRET_KEY", "hunter2")
    monkeypatch.setenv("LC_NUMERIC", "C")
    done = shell("env", env={"GIVEN": "1"})
    names = {line.partition("=")[0] for line in done.output.splitlines()}
    assert {"PATH", "HOME", "LC_NUMERIC", "GIVEN"} <= names
    assert "CLOUD_SECRET_KEY" not in names
    assert "hunter2" not in done.output


def counted(name: str, ticks: int, log: list[str]) -> Generator[Tick, None, str]:
    """A wait of `ticks` ticks that records its start and its end."""
    log.append(f"{name} begins")
    try:
        for _ in range(ticks):
            yield Tick(name)
    finally:
        log.append(f"{name} ends")
    return name


def test_waits_run_side_by_side_and_answer_in_order() -> None:
    """As many at a time as are allowed, the next as soon as one has ended."""
    log: list[str] = []
    waits = (counted(name, ticks, log) for name, ticks in (("a", 5), ("b", 1), ("c", 1)))
    assert ["a", "b", "c"] == run_to_end(run_side_by_side(waits, 2))
    assert ["a begins", "b begins", "b ends", "c begins", "c ends", "a ends"] == log


def test_a_program_is_refused_memory_before_the_machine_is_short_of_it() -> None:
    """Memory in use at the start does not count; an allocation beyond the limit fails, and nothing is killed."""
    code = "from loop.base.own_process import limit_memory\nlimit_memory()\nbytearray(10**7)\nbytearray(10**9)"
    environment = {"PYTHONPATH": python_path(), "LOOP_MEMORY": "100000000"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (1, "MemoryError") == (done.returncode, done.stderr.strip().splitlines()[-1])
    assert "line 4" in done.stderr


WITHIN_S = 5.0  # Seconds after which nothing may be left.
WORK = """
import os, sys, time
from loop.base.processes import Child, end_children_at_exit
end_children_at_exit()
from loop.base.processes import raise_if_signalled, signals_as_flags
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
    child.wait_for_output()
try:
    with signals_as_flags():
        done("worker")
        while True:
            child.wait_for_output()
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
    """The second signal comes one second after the first."""
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


@pytest.mark.parametrize("number", SIGNALS)
def test_nothing_is_raised_before_somebody_looks(number: signal.Signals) -> None:
    """The error then names the signal."""
    before = signal.getsignal(number)
    with signals_as_flags():
        signal.raise_signal(number)
        done = sum(range(1000))
        with pytest.raises(Stopped, match=f"interrupted by {number.name}") as raised:
            raise_if_signalled()
    assert (499500, ExitCode.INTERRUPTED) == (done, raised.value.exit_code)
    assert before == signal.getsignal(number)


def test_one_that_nobody_saw_is_raised_at_the_end() -> None:
    """It is raised when the outermost block ends, after the handlers are restored."""
    passed = []

    def inner() -> None:
        with signals_as_flags():
            with signals_as_flags():
                signal.raise_signal(signal.SIGINT)
            passed.append("inner")

    with pytest.raises(Stopped):
        inner()
    assert ["inner"] == passed
    raise_if_signalled()


def test_none_is_lost_in_a_fork() -> None:
    """A signal during a fork is kept, though Python drops exceptions of handlers there."""

    def fork() -> None:
        with signals_as_flags():
            timer = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            subprocess.run(["true"], check=True)
            timer.join()

    for _ in range(30):
        with pytest.raises(Stopped):
            fork()


def test_a_later_one_ends_the_process(tmp_path: Path) -> None:
    """A second signal ends a process that hangs and never checks for signals."""
    script = (
        "import signal, time; from loop.base import processes\n"
        "processes.SAME_SIGNAL_S = 0.2\n"
        "with processes.signals_as_flags():\n"
        "    signal.raise_signal(signal.SIGTERM); signal.raise_signal(signal.SIGTERM); print('both', flush=True)\n"
        "    time.sleep(0.3); signal.raise_signal(signal.SIGTERM); print('never')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (ExitCode.INTERRUPTED, "both\n") == (done.returncode, done.stdout)
    assert processes.SAME_SIGNAL_S > 0.3


def test_a_signal_that_a_library_swallowed_ends_the_command_all_the_same() -> None:
    """pydantic drops an exception of a handler and reports a valid file as invalid; the command still ends."""
    script = """
import signal, sys
from loop.base.errors import UsageError
from loop import cli

def load():
    for number in cli.SIGNALS:
        signal.signal(number, cli._stop_on_signal)
    try:
        cli._stop_on_signal(signal.SIGTERM, None)
    except BaseException:
        pass  # As pydantic does.
    raise UsageError("target.yaml:7:13: a pattern", "mend it")

cli._run_command_line = load
sys.argv = ["loop", "status"]
cli.main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == ExitCode.INTERRUPTED, ended.stderr
    assert "target.yaml" not in ended.stderr


def test_an_interrupt_while_the_command_line_is_imported_is_one_line() -> None:
    """An interrupt during imports prints one line and no traceback."""
    script = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from loop.cli import main
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ExitCode.INTERRUPTED, 1) == (ended.returncode, len(ended.stderr.splitlines()))


def test_a_signal_noted_before_the_work_keeps_it_from_beginning() -> None:
    """A signal before the work starts prevents the work."""
    store_signal_number(signal.SIGTERM)
    begun = []
    with pytest.raises(Stopped), signals_as_flags():
        begun.append("work")
    processes._signal_state.number = 0
    assert not begun
