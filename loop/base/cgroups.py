"""A cgroup for all that a command starts, where one may be made: one write ends all of it (cgroups(7), version 2).

Its name says whose it is. So the next command finds it where both of a command's processes were killed, and ends
also what left its group, lost its parent and emptied its environment.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from loop.base.processes import name_of

NAME = "loop"
MEMBERS, KILL = "cgroup.procs", "cgroup.kill"
"""Files of a cgroup: its processes, and (since Linux 5.14) what kills them all."""
EMPTY_S = 5.0
"""Seconds in which killed processes are to be gone."""


def room_of(pid: int) -> Path | None:
    """Where the cgroup of a process of ours is, once it has made one; None where there are none."""
    here = own()
    return here / f"{_prefix()}{name_of(pid)}" if here is not None else None


def enter() -> None:
    """Put this process, and all that it starts from now on, into a new cgroup, where one may be made."""
    room = room_of(os.getpid())
    with contextlib.suppress(OSError):
        if room is not None and os.access(room.parent / MEMBERS, os.W_OK):
            room.mkdir()
            (room / MEMBERS).write_text("0")


def members(folder: Path) -> list[int]:
    """Numbers of the processes in a cgroup and in those below it."""
    found: list[int] = []
    for below, _, _ in os.walk(folder):
        with contextlib.suppress(OSError, ValueError):
            found += map(int, (Path(below) / MEMBERS).read_text().split())
    return found


def end(folder: Path) -> None:
    """Kill everything in a cgroup, and take it away once that is gone."""
    end = time.monotonic() + EMPTY_S
    while (left := members(folder)) and time.monotonic() < end:
        _kill(folder, left)
        time.sleep(0.002)
    for below, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(below)


def _kill(folder: Path, left: list[int]) -> None:
    if (folder / KILL).exists():
        (folder / KILL).write_text("1")
        return
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def abandoned() -> list[Path]:
    """Cgroups of ours whose owner has ended, anywhere: the next command may be started in another place."""
    top, prefix = _mounted(), _prefix()
    if top is None:
        return []
    named = ((path, path.name.removeprefix(prefix)) for path in _below(top[0]) if path.name.startswith(prefix))
    return [path for path, owner in named if _mine(path) and name_of(int(owner.partition("-")[0])) != owner]


def _below(top: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(top):
        yield from (Path(folder) / name for name in names)


def _mine(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_uid == os.geteuid()
    return False


def _prefix() -> str:
    """Process numbers mean something in one PID namespace only: its number is in the name."""
    return f"{NAME}-{os.stat('/proc/self/ns/pid').st_ino}-"


def own() -> Path | None:
    """The folder of this process's cgroup; None where there is no version 2, or it cannot be seen from here."""
    found = _mounted()
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        return found[0] / Path(path).relative_to(found[1]) if found else None
    return None


def _mounted() -> tuple[Path, str] | None:
    """Where version 2 is mounted, and which part of the hierarchy that shows."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return Path(before.split()[4]), before.split()[3]
    return None
