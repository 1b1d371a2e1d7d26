"""A worker's processes, as the kernel lists them: none hides, and none runs while it should stand still."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from loop.base.processes import Child
from loop.workers import kin
from loop.workers.kin import Kin

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    if "{way}" == "nameless":
        os.execve("/bin/sh", ["/bin/sh", "-c", "while :; do :; done"], {{}})
    while True:
        pass
os.wait()
print("ready", flush=True)
time.sleep(60)
"""


@contextmanager
def child(text: str) -> Iterator[tuple[Child, Kin]]:
    """A process of ours with its kin, once it says that it is ready."""
    with Child([sys.executable, "-S", "-c", text]) as made:
        wait_for(lambda: made.pump(0.05) or "ready" in made.output.text)
        yield made, Kin(made.process.pid, made.tag)


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something is so, ten seconds at most."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def nameless() -> list[int]:
    """Living orphans that do not show where they come from."""
    return [one for one in kin.orphans() if kin._state(one) not in "ZX" and not kin._carries(one, "")]


def test_a_daemon_is_found_and_stopped() -> None:
    """It has left the group, the session and its parent; its environment names whose it is."""
    with child(DAEMON.format(way="")) as (made, its):
        wait_for(lambda: len(its.pids()) == 2)
        its.stop()
        wait_for(lambda: its.awake() == "")
        daemon = its.pids()[1]
        assert daemon != made.process.pid
        wait_for(lambda: kin._state(daemon) == "T")
        its.resume()
        wait_for(lambda: kin._state(daemon) == "R")
        assert "" == kin.Kin(made.process.pid, made.tag).beyond(os.sched_getaffinity(0))
    wait_for(lambda: kin._state(daemon) in "XZ")


def test_a_process_that_runs_while_it_should_not_is_named_and_stopped() -> None:
    """Somebody else may have waked it."""
    with child(DAEMON.format(way="")) as (_, its):
        wait_for(lambda: len(its.pids()) == 2)
        its.stop()
        wait_for(lambda: its.awake() == "")
        os.kill(its.pids()[1], 18)
        wait_for(lambda: its.awake() == "a process that it started runs")
        wait_for(lambda: its.awake() == "")


def test_an_orphan_that_does_not_show_whose_it_is_is_killed() -> None:
    """A clean environment and a session of its own: nothing honest has both."""
    with child(DAEMON.format(way="nameless")) as (_, its):
        wait_for(lambda: nameless())
        (daemon,) = nameless()
        assert [its.pid] == its.pids()
        assert kin.end_nameless()
        wait_for(lambda: kin._state(daemon) in "XZ")


def test_processes_of_our_own_are_no_orphans() -> None:
    """What we run beside is left alone."""
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as ours:
        assert ours.pid not in kin.orphans()
        assert not kin.end_nameless()
        ours.kill()


def test_what_others_did_to_a_process_that_stood_still_is_seen_and_undone() -> None:
    """Its cores and its priority are what they were when it goes on; its death is told."""
    with child("import time; print('ready', flush=True); time.sleep(60)") as (_, its):
        its.stop()
        assert "" == its.meddled()
        os.setpriority(os.PRIO_PROCESS, its.pid, 7)
        assert "given another priority" == its.meddled()
        cores = os.sched_getaffinity(its.pid)
        if len(cores) > 1:
            os.sched_setaffinity(its.pid, {min(cores)})
            assert its.meddled().startswith("moved from cores ")
        its.resume()
        assert cores == os.sched_getaffinity(its.pid)
        its.stop()
        os.kill(its.pid, 9)
        wait_for(lambda: its.meddled() == kin.KILLED)


def test_what_was_done_while_it_ran_is_undone() -> None:
    """Priority and cores of a process that was pinned; one that was still to be pinned keeps its new cores."""
    with child("import time; print('ready', flush=True); time.sleep(60)") as (_, its):
        its.stop()
        before, cores = its.known, os.sched_getaffinity(its.pid)
        its.resume()
        os.setpriority(os.PRIO_PROCESS, its.pid, 7)
        its.stop()
        assert its.mend(before, cores)
        assert 0 == os.getpriority(os.PRIO_PROCESS, its.pid) - os.getpriority(os.PRIO_PROCESS, 0)
        assert not its.mend(before, cores)
        os.sched_setaffinity(its.pid, {min(cores)})
        assert not its.mend(before, {min(cores)})
        assert its.mend(before, cores) == (len(cores) > 1)
        assert cores == os.sched_getaffinity(its.pid)


def test_cores_beyond_those_given_are_told() -> None:
    """Of the process and of what it started."""
    with child("import time; print('ready', flush=True); time.sleep(60)") as (_, its):
        cores = os.sched_getaffinity(its.pid)
        assert "" == its.beyond(cores)
        assert its.beyond({max(cores) + 1}).startswith("a thread runs on cores ")


def test_a_process_that_another_started_may_do_nothing_on_any_core() -> None:
    """One that works beyond the cores that were given is told."""
    code = "import subprocess, time; subprocess.Popen(['sleep', '60']); print('ready', flush=True); time.sleep(60)"
    with child(code) as (_, its):
        wait_for(lambda: len(its.pids()) == 2)
        cores, others = os.sched_getaffinity(its.pid), {max(os.sched_getaffinity(its.pid)) + 1}
        wait_for(lambda: kin._state(its.pids()[1]) == "S")
        its.stop()
        its.resume()
        assert its._idle(its.pids()[1])
        assert not its._idle(its.pid)
        assert "" == its.beyond(cores)
        assert its.beyond(others).startswith("a thread runs on cores ")
    with child(DAEMON.format(way="")) as (_, its):
        wait_for(lambda: len(its.pids()) == 2)
        its.stop()
        its.resume()
        wait_for(lambda: not its._idle(its.pids()[1]))
