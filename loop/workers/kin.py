"""All processes that a worker has started, as the kernel lists them: also those that left its group and parent.

What a process says of itself can be changed, what the kernel says of it cannot. Linux; elsewhere nobody tells, and
only the process group is signalled.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from loop.base.processes import STARTED, TAG

PROC = Path("/proc")
STILL, STILL_S = "TtZX", 0.05
"""States of a process that is stopped or has ended (proc(5)), and seconds that we wait for one of them."""
AWAKE_S, AWAKE_SHARE = 0.02, 0.3
"""Processor time that a process may take after it was stopped, in seconds and as a share of the time that it stood
still: what the kernel or a driver does for it comes to an end first."""
IDLE_S, IDLE_SHARE = 1e-3, 0.02
"""Processor time that a process which another started may take and still be idle, in seconds and as a share of the
time that it could run."""
MOST_TASKS = 8
"""Threads of a process whose cores and priority are looked at each time: torch has a hundred."""
CPUCLOCK_SCHED = 2
"""The clock of a process that the scheduler keeps, in include/linux/posix-timers.h."""
KILLED = "killed"
MOST_PASSES = 5
"""A process may start another one before it is stopped itself."""
Scheduling = dict[int, tuple[frozenset[int], int]]
"""By task: its cores, and its priority."""


class Kin:
    """A process that we started in a session of its own, with its descendants and its orphans."""

    def __init__(self, pid: int, tag: str) -> None:
        self.pid, self.tag = pid, tag
        self._known: Scheduling = {}
        """What was so when it was stopped."""
        self._stopped: dict[int, float] = {}
        """What stands still, and the processor time that it had taken by then."""
        self._resumed: dict[int, float] = {}
        self._resumed_at = 0.0
        """When it went on last, and the processor time that each process had taken by then."""
        self._since, self._still_s, self._awake_s = 0.0, 0.0, 0.0
        """When it was stopped last; how long it stood still before, and the processor time it took meanwhile."""

    def pids(self) -> list[int]:
        """The process itself, then the others."""
        found = [self.pid, *_descendants(self.pid)]
        for orphan in orphans():
            if _session(orphan) == self.pid or _carries(orphan, self.tag):
                found += [orphan, *_descendants(orphan)]
        return found

    def stop(self) -> None:
        """Have all of it stand still."""
        self._signal_group(signal.SIGSTOP)
        for _ in range(MOST_PASSES):
            fresh = set(self.pids()) - self._stopped.keys()
            if not fresh:
                break
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            for pid in fresh:
                _wait_until_still(pid)
                self._stopped[pid] = _taken_s(pid)
        self._known = _terms(self.pid, MOST_TASKS)
        self._since = time.monotonic()

    def resume(self) -> None:
        """Let all of it go on, on the cores and with the priority that it had."""
        restore(self._known)
        self._still_s += time.monotonic() - self._since
        self._awake_s += sum(self._taken_since().values())
        self._resumed, self._resumed_at = {pid: _taken_s(pid) for pid in self._stopped}, time.monotonic()
        self._signal_group(signal.SIGCONT)
        for pid in self._stopped:
            _signal(pid, signal.SIGCONT)
        self._stopped, self._known = {}, {}

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # It has died: whoever waits for it says how.
            os.killpg(self.pid, number)

    def beyond(self, given: set[int]) -> str:
        """How it escaped its cores, or took more than its share of them; empty when it did not."""
        for pid in self.pids():
            what = "a thread" if pid == self.pid else "a process that it started"
            for task, (cores, nice) in _terms(pid).items():
                if given and not cores <= given and not self._idle(pid):
                    return f"{what} runs on cores {said(cores)}, it was given {said(given)}"
                if nice < os.getpriority(os.PRIO_PROCESS, 0) or _hurries(task):
                    return f"{what} raised its priority"
        return ""

    def _idle(self, pid: int) -> bool:
        """Whether a process that it started has done nothing since it went on: then its cores do not matter."""
        taken_s, could_s = _taken_s(pid) - self._resumed.get(pid, 0.0), time.monotonic() - self._resumed_at
        return pid != self.pid and taken_s < max(IDLE_S, IDLE_SHARE * could_s)

    def awake(self) -> str:
        """What of it runs although it was stopped; empty when nothing does. What runs is stopped.

        All that it took while it stood still counts: of one turn it may be less than what the kernel does for it.
        """
        taken = self._taken_since()
        still_s = self._still_s + time.monotonic() - self._since
        if self._awake_s + sum(taken.values()) < max(AWAKE_S, AWAKE_SHARE * still_s):
            return ""
        for pid in taken:
            _signal(pid, signal.SIGSTOP)
        return "it runs" if taken.get(self.pid, 0.0) > AWAKE_S / 2 else "a process that it started runs"

    def _taken_since(self) -> dict[int, float]:
        """Processor time that each process took since it was stopped."""
        return {pid: max(_taken_s(pid) - before, 0.0) for pid, before in self._stopped.items()}

    @property
    def known(self) -> Scheduling:
        """What was so when it was stopped."""
        return dict(self._known)

    def mend(self, before: Scheduling, given: set[int]) -> bool:
        """Give its tasks, while it stands still, what they had before; whether they had anything else.

        What was not pinned to the cores it was `given` may have been pinned since.
        """
        now = _terms(self.pid, MOST_TASKS)
        wanted = {
            task: (cores if cores <= given else now[task][0], nice)
            for task, (cores, nice) in before.items()
            if task in now
        }
        changed = restore(wanted)
        self._known = _terms(self.pid, MOST_TASKS)
        return changed

    def meddled(self) -> str:
        """What somebody else did to it while it stood still; empty when nobody did anything."""
        if _state(self.pid) in "ZX":
            return KILLED
        now = _terms(self.pid, MOST_TASKS)
        for task, (cores, nice) in self._known.items():
            if task in now and now[task][0] != cores:
                return f"moved from cores {said(cores)} to {said(now[task][0])}"
            if task in now and now[task][1] != nice:
                return "given another priority"
        return ""


def orphans() -> list[int]:
    """Processes that became our children because their own parent ended."""
    return [pid for pid in _children(os.getpid()) if pid not in STARTED and _session(pid) != os.getsid(0)]


def end_nameless() -> bool:
    """Kill orphans that do not show where they come from; whether there were any."""
    hidden = [pid for pid in orphans() if _session(pid) not in STARTED and not _carries(pid, "")]
    found = [pid for pid in hidden if _state(pid) not in "ZX"]
    for pid in [one for orphan in found for one in (orphan, *_descendants(orphan))]:
        _signal(pid, signal.SIGKILL)
    for pid in hidden:  # They were left to us; nobody else waits for them.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return bool(found)


def own_terms() -> Scheduling:
    """Cores and priority of the thread that asks."""
    task = threading.get_native_id()
    return {one: terms for one, terms in _terms(os.getpid()).items() if one == task}


def restore(terms: Scheduling) -> bool:
    """Give tasks these cores and priorities again; whether they had others."""
    changed = False
    for task, (cores, nice) in terms.items():
        with contextlib.suppress(OSError):
            now = frozenset(os.sched_getaffinity(task)), os.getpriority(os.PRIO_PROCESS, task)
            if now != (cores, nice):
                changed = True
                os.sched_setaffinity(task, cores)
                os.setpriority(os.PRIO_PROCESS, task, nice)
    return changed


def said(cores: set[int] | frozenset[int]) -> str:
    """Numbers of cores in words."""
    return ", ".join(map(str, sorted(cores)))


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    return [int(one) for task in _tasks(pid) for one in _read(f"{PROC}/{pid}/task/{task}/children").split()]


def _tasks(pid: int) -> list[int]:
    try:
        return [int(task) for task in os.listdir(f"{PROC}/{pid}/task")]
    except OSError:  # It has ended meanwhile.
        return []


def _terms(pid: int, most: int | None = None) -> Scheduling:
    found = {}
    for task in sorted(_tasks(pid))[:most]:
        with contextlib.suppress(OSError):
            found[task] = frozenset(os.sched_getaffinity(task)), os.getpriority(os.PRIO_PROCESS, task)
    return found


def _hurries(task: int) -> bool:
    """Whether the scheduler prefers a task to all ordinary ones."""
    with contextlib.suppress(OSError):
        return os.sched_getscheduler(task) in (os.SCHED_FIFO, os.SCHED_RR)
    return False


def _wait_until_still(pid: int) -> None:
    """Wait until a process has stopped: on a busy machine it may have to be given a core first."""
    end = time.monotonic() + STILL_S
    while _state(pid) not in STILL and time.monotonic() < end:
        time.sleep(1e-5)


def _taken_s(pid: int) -> float:
    """Processor time of all threads of a process, in seconds (clock_getcpuclockid(3)); 0 when it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def _state(pid: int) -> str:
    """The state of a process, a letter as proc(5) lists them; X when it is gone."""
    return (_read(f"{PROC}/{pid}/stat").rpartition(b")")[2].split() or [b"X"])[0].decode()


def _session(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return 0


def _carries(pid: int, tag: str) -> bool:
    """Whether a process has a tag in its environment; an empty one stands for any."""
    return any(one.startswith(f"{TAG}={tag}".encode()) for one in _read(f"{PROC}/{pid}/environ").split(b"\0"))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _read(path: str) -> bytes:
    """A file of /proc; empty when its process is gone. Hundreds are read a second: no object is made for each."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        found = b""
        while part := os.read(handle, 1 << 16):
            found += part
        return found
    except OSError:
        return b""
    finally:
        os.close(handle)
