"""What a program of ours sets for its own process. Imports little, so that workers start fast."""

import ctypes
import os
import resource
import signal

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MEMORY_VARIABLE = "LOOP_MEMORY"
"""Environment variable: bytes that a process may allocate beyond those it has at its start."""
_LIBC = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent died."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the system to send this process a signal when its parent ends."""
    _LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def limit_memory(extra_bytes: int | None = None) -> None:
    """Let this process allocate only so many further bytes. None: LOOP_MEMORY, if set."""
    extra_bytes = extra_bytes or int(os.environ.get(MEMORY_VARIABLE) or 0)
    if extra_bytes:
        with open("/proc/self/statm") as file:
            data_pages = int(file.read().split()[5])  # Data and stacks (proc(5)).
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = extra_bytes + data_pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard < 0 else min(soft, hard), hard))


def lift_memory_limit() -> None:
    """Undo `limit_memory` before a user's program runs: sanitizers reserve more than they use."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
