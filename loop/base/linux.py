"""What we ask of Linux for ourselves and our children (prctl(2)): memory, orphans, an end with the parent."""

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MEMORY = "LOOP_MEMORY"
"""Environment variable: memory that a process may take besides what it has when it begins to answer."""


TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = (-1, 1 << 28), (-2, 1 << 26), (-3, 1 << 25)
"""mallopt(3): bytes that are kept before any are given back, that are asked for at a time, and from which on a
block stands alone. To judge 64 million elements took 1.1 million page faults without these, and takes 8,400."""


def keep_freed_memory() -> None:
    """Let this process use what it freed again, rather than give it back and take it anew page by page (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for option, value in (TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD):
            libc.mallopt(option, value)


def is_stopped(pid: int) -> bool:
    """Whether a process stands still by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent died (Linux only)."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Be sent this signal when the parent ends (Linux only)."""
    _prctl(PR_SET_PDEATHSIG, number)


def bound_memory() -> None:
    """Be refused more memory than the environment allows from here on, before the machine is short of it."""
    if most := os.environ.get(MEMORY):
        text = Path("/proc/self/status").read_text() if sys.platform == "linux" else ""
        data_kib = re.search(r"^VmData:\s+(\d+) kB", text, re.MULTILINE)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = int(most) + 1024 * int(data_kib[1] if data_kib else 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))


def unbound_memory() -> None:
    """Before a program of the user's, which may reserve more than it uses, as a sanitizer does."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
