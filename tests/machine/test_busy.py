"""Who else takes the cores: read from a made-up /proc, and once from the real one."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.machine import busy
from loop.machine.busy import Crowd, _apart, crowd


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like /proc in which nothing runs yet; looking takes no time."""
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(busy, "LOOK_S", 0.0)
    return tmp_path / "proc"


def write(proc: Path, pid: int, name: str, parent: int, ticks: int) -> None:
    """A process that ran for so many ticks, half of them in the kernel."""
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = ["S", str(parent), *["0"] * 9, str(ticks - ticks // 2), str(ticks // 2), *["0"] * 30]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}")


def clock(*later: Callable[[], None]) -> Callable[[], float]:
    """One second a look; before the second look something happens."""

    def times() -> Iterator[float]:
        yield 0.0
        for happen in later:
            happen()
        yield 1.0
        while True:
            yield 1.0

    return times().__next__


def test_others_are_told_from_our_own(proc: Path) -> None:
    """We, our workers and theirs are not others; a name may hold blanks and brackets."""
    for pid, name, parent in ((5, "loop", 1), (6, "worker", 5), (7, "thread of it", 6), (8, "a (b) c", 1)):
        write(proc, pid, name, parent, 100)

    def later() -> None:
        for pid, name, parent in ((5, "loop", 1), (6, "worker", 5), (7, "thread of it", 6), (8, "a (b) c", 1)):
            write(proc, pid, name, parent, 150)
        write(proc, 9, "began meanwhile", 1, 90)

    found = finish(crowd(proc, clock(later), us=5))
    (one,) = found.programs
    assert ("a (b) c", 50 / os.sysconf("SC_CLK_TCK")) == (one.name, one.cores)
    assert 0.0 == found.stolen


def test_what_the_host_takes_is_read_too(proc: Path) -> None:
    """From the first line of `stat`."""
    write(proc, 8, "x", 1, 0)
    (proc / "stat").write_text("cpu  1 2 3 4 5 6 7 100 0 0\ncpu0 1 2 3\n")

    def later() -> None:
        (proc / "stat").write_text("cpu  1 2 3 4 5 6 7 180 0 0")

    found = finish(crowd(proc, clock(later)))
    assert 80 / os.sysconf("SC_CLK_TCK") == found.stolen


def test_where_nobody_tells_nothing_is_said(proc: Path) -> None:
    """No /proc, or one whose processes end while they are looked at."""
    assert Crowd() == finish(crowd(proc / "missing"))
    (proc / "12").mkdir()
    assert Crowd() == finish(crowd(proc))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_this_very_process_is_not_another() -> None:
    """On the machine that runs this."""
    seen = busy._processes(Path("/proc"))
    assert os.getpid() in busy._descendants(seen, os.getpid())
    assert os.getppid() not in busy._descendants(seen, os.getpid())


def test_the_load_is_who_else_waits_for_a_core(tmp_path: Path) -> None:
    """By the kernel's own count, less this program, for each core; nothing where nobody counts."""
    assert None is busy.load(2, tmp_path, lambda seconds: None)
    (tmp_path / "loadavg").write_text("0.10 0.20 0.30 6/200 1234\n")
    assert 2.5 == busy.load(2, tmp_path, lambda seconds: None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2, reason="two cores")
def test_what_is_bound_to_other_cores_disturbs_nobody() -> None:
    """Sessions side by side on a large machine, each on cores of its own, do not warn of each other."""
    before = os.sched_getaffinity(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        try:
            os.sched_setaffinity(other.pid, {max(before)})
            assert not _apart(other.pid)
            os.sched_setaffinity(0, before - {max(before)})
            assert _apart(other.pid)
        finally:
            os.sched_setaffinity(0, before)
            other.kill()
