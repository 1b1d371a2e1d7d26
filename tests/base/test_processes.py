"""Children end when they have to, say no more than they may, and know no secret."""

import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from loop.base.errors import LoopError
from loop.base.processes import CappedStream, Completed, Tick, python_path, run, run_side_by_side, run_to_end


def shell(script: str, *arguments: str, limit_s: float = 20.0, env: dict[str, str] | None = None) -> Completed:
    """A shell script, run to its end."""
    done: Completed = run_to_end(run(["/bin/sh", "-c", script, "sh", *arguments], limit_s=limit_s, env=env))
    return done


def test_a_long_stream_keeps_its_head_and_its_tail() -> None:
    """The first quarter and the last three quarters of the cap, and how much lay between."""
    kept = CappedStream(max_bytes=8)
    for byte in b"abcdefghijklmnop":
        kept.add(bytes([byte]))
    assert (8, "ab\n... 8 bytes left out ...\nklmnop") == (kept.dropped_bytes, kept.text)


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
    """A wait of so many ticks that writes down when it begins and how it ends."""
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
    """What it has when it begins does not count; an allocation beyond that fails, and nothing is killed."""
    code = "from loop.base.own_process import limit_memory\nlimit_memory()\nbytearray(10**7)\nbytearray(10**9)"
    environment = {"PYTHONPATH": python_path(), "LOOP_MEMORY": "100000000"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (1, "MemoryError") == (done.returncode, done.stderr.strip().splitlines()[-1])
    assert "line 4" in done.stderr
