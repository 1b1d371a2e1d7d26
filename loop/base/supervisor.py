"""Two processes for one command: the first watches, the second works, and nothing of either is left behind.

The first adopts whatever loses its parent below it (`prctl(2)`, PR_SET_CHILD_SUBREAPER), so that it can end also
what left its group and emptied its environment. Where the first is killed, the second is told (PR_SET_PDEATHSIG)
and ends in good order. Where a cgroup may be made the second is in it, so that nothing escapes the next command if
both are killed. Linux; elsewhere there is one process.
"""

import atexit
import contextlib
import os
import resource
import signal
import sys
import time
from pathlib import Path

import psutil

from loop.base import cgroups
from loop.base.interrupts import SIGNALS
from loop.base.linux import adopt_orphans, die_with_parent, keep_out, watched_by
from loop.base.processes import OWNER, name_of
from loop.base.remarks import remark

FROM_KERNEL = 128
"""SI_KERNEL of sigaction(2): a terminal sends its signals to the whole group; the worker has them already."""
GONE_S = 5.0
"""Seconds in which everything is to be gone."""


def supervise() -> None:
    """Fork, and return in the process that works; the other one stays until that has ended, and ends as it did."""
    if sys.platform != "linux":
        return
    _end_left_behind()
    sys.stdout.flush()
    adopt_orphans()
    keep_out()
    watched = {*SIGNALS, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    watching = os.getpid()
    worker = os.fork()
    if worker:
        room = cgroups.room_of(worker)
        status = _watch(worker, watched)
        if room is not None:
            cgroups.end(room)
        _sweep()
        _end_like(status)
    cgroups.enter()
    die_with_parent(signal.SIGTERM)
    watched_by(watching)
    atexit.register(_sweep)
    if os.getppid() != watching:  # It was killed meanwhile.
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def left_behind() -> set[psutil.Process]:
    """Processes of ours whose owner was killed before it could end them.

    Those of another PID namespace, as of a container, are left alone: their owners have other numbers here.
    """
    found: set[psutil.Process] = set()
    ours = os.readlink("/proc/self/ns/pid")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError, ValueError):
            if os.readlink(f"/proc/{process.pid}/ns/pid") != ours:
                continue
            owner = process.environ().get(OWNER, "") if process.uids().real == os.getuid() else ""
            if owner and name_of(int(owner.partition("-")[0])) != owner:
                found |= {process, *process.children(recursive=True)}
    return found


def _end_left_behind() -> None:
    """End what commands left that were killed together with those who watched them: it would disturb this one."""
    left: set[psutil.Process] = set()
    with contextlib.suppress(OSError):  # /proc may be missing.
        left = left_behind()
        for room in cgroups.abandoned():
            left |= _in(room)
    names = sorted(map(_name, left))
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    with contextlib.suppress(OSError):
        for room in cgroups.abandoned():
            cgroups.end(room)
    if left:
        remark(f"ended {len(left)} left behind by a loop that was killed: {', '.join(names)}")


def _in(room: Path) -> set[psutil.Process]:
    """The processes of a cgroup."""
    found = set()
    for pid in cgroups.members(room):
        with contextlib.suppress(psutil.Error):
            found.add(psutil.Process(pid))
    return found


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.name()} ({process.pid})"
    return str(process.pid)


def _watch(worker: int, watched: set[signal.Signals]) -> int:
    """Pass signals on until the worker has ended; its status as waitpid(2) has it."""
    while True:
        told = signal.sigwaitinfo(watched)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code != FROM_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, told.si_signo)
            continue
        status = _reap(worker)
        if status is not None:
            return status


def _reap(worker: int) -> int | None:
    """The worker's status once it has ended. One that is stopped by anybody but a terminal goes on."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        if pid != worker:
            continue
        if not os.WIFSTOPPED(status):
            ended = status
        elif os.WSTOPSIG(status) == signal.SIGSTOP:
            os.kill(worker, signal.SIGCONT)


def _sweep() -> None:
    """End everything below this process."""
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)


def _end_like(status: int) -> None:
    """End as a process with this status did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        goes_on = "; `loop run session --resume last` goes on" if sys.argv[1:3] == ["run", "session"] else ""
        remark(f"killed by {signal.Signals(number).name}{goes_on}")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
