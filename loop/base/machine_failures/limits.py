"""Memory, processes and open files: did the machine run out of them?"""

import contextlib
import os
import resource
from collections import Counter
from collections.abc import Callable
from errno import EAGAIN, EDQUOT, EFBIG, EMFILE, ENOMEM, ENOSPC, EROFS
from pathlib import Path

import psutil

LITTLE_BYTES = 256 << 20
"""Memory with which a compiler cannot be expected to work."""
FEW_PROCESSES, FEW_FILES = 64, 256
"""Room for so few more processes, or a limit of so few open files, is too little for a compiler."""
SAID = {
    ENOSPC: ("no space left on device",),
    EDQUOT: ("disk quota exceeded",),
    EROFS: ("read-only file system",),
    EFBIG: ("file too large", "file size limit exceeded", "sigxfsz"),
    ENOMEM: (
        "cannot allocate memory",
        "out of memory allocating",
        "memory exhausted",
        "bad_alloc",
        "memoryerror",
        "failed to map segment",
    ),
    EAGAIN: ("resource temporarily unavailable", "can't start new thread"),
    EMFILE: ("too many open files",),
}
"""Error number to what a program prints that meets it, in small letters."""
GROUPS = Path("/sys/fs/cgroup")


def named(text: str) -> list[int]:
    """The error numbers that a text speaks of."""
    small = text.lower()
    return [number for number, phrases in SAID.items() if any(phrase in small for phrase in phrases)]


def counts() -> Counter[int]:
    """How often the system ended a process of our control group for memory, or refused it a process, so far."""
    return Counter({ENOMEM: _event("memory.events", "oom_kill"), EAGAIN: _event("pids.events", "max")})


def short_of(said: str, since: Counter[int]) -> int:
    """The error number of what the machine ran out of; 0 for nothing.

    `said`: what a step says that failed. `since`: the `counts` before it.
    """
    counted = counts() - since
    short = (one for one in named(said) if one in IS_SHORT and IS_SHORT[one]())
    return next(iter(counted), 0) or next(short, 0)


def _memory_is_short() -> bool:
    return _limit(resource.RLIMIT_AS) is not None or psutil.virtual_memory().available < LITTLE_BYTES


def _limit(kind: int) -> int | None:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _processes_are_few() -> bool:
    """Whether the user may have few processes more; threads count, and root has no limit."""
    limit = _limit(resource.RLIMIT_NPROC)
    if limit is None or not os.geteuid():
        return False
    ours = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours += process.num_threads() if process.uids().real == os.getuid() else 0
    return ours + FEW_PROCESSES > limit


IS_SHORT: dict[int, Callable[[], bool]] = {
    EFBIG: lambda: _limit(resource.RLIMIT_FSIZE) is not None,
    ENOMEM: _memory_is_short,
    EMFILE: lambda: (_limit(resource.RLIMIT_NOFILE) or FEW_FILES) < FEW_FILES,
    EAGAIN: _processes_are_few,
}
"""Error number to whether so little is left that it is the machine's."""


def _event(file: str, name: str) -> int:
    """A counter of our control group (version 2); 0 where there is none."""
    try:
        group = Path("/proc/self/cgroup").read_text().partition("0::/")[2].splitlines()[0]
        lines = (GROUPS / group / file).read_text().splitlines()
        return int(dict(line.split() for line in lines)[name])
    except (OSError, ValueError, KeyError, IndexError):
        return 0
