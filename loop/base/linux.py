"""What we ask of Linux for ourselves and our children (prctl(2), landlock(7)); processes that were stopped."""

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 4, 24, 36
PR_SET_NO_NEW_PRIVS, CAP_SYS_PTRACE = 38, 19
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446
"""System calls: landlock_create_ruleset(2) and landlock_restrict_self(2)."""
LANDLOCK_VERSION, SIGNALS_SINCE, SCOPE_SIGNAL = 1, 6, 2
"""The flag that asks for the version, the version that knows of signals, and the flag that keeps them in."""
MEMORY = "LOOP_MEMORY"
"""Environment variable: memory that a process may take besides what it has when it begins to answer."""
STOPPED_S = 0.5
"""How long a process that we depend on stands still before we have it go on: a terminal stops all at once."""


TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = (-1, 1 << 28), (-2, 1 << 26), (-3, 1 << 25)
"""mallopt(3): bytes that are kept before any are given back, that are asked for at a time, and from which on a
block stands alone. To judge 64 million elements took 1.1 million page faults without these, and takes 8,400."""


def keep_freed_memory() -> None:
    """Let this process use what it freed again, rather than give it back and take it anew page by page (glibc)."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for option, value in (TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD):
            libc.mallopt(option, value)


class Roused:
    """A process that goes on when it was stopped by anybody but a terminal, which stops us with it."""

    def __init__(self, pid: int, seconds: float = STOPPED_S) -> None:
        self.pid, self.seconds = pid, seconds
        self._looked = self._since = time.monotonic()

    def rouse(self) -> None:
        """Look, now and then, whether it stands still, and have it go on once it did for a while."""
        now = time.monotonic()
        if now - self._looked < self.seconds / 2:
            return
        self._looked = now
        if not is_stopped(self.pid):
            self._since = now
        elif now - self._since >= self.seconds:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGCONT)


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


def keep_out() -> None:
    """Let no other process of the user's open descriptors and memory of this one (Linux only)."""
    _prctl(PR_SET_DUMPABLE, 0)


def stay_out(*, unprivileged: bool) -> None:
    """Before a program that we do not trust: it dies with us, opens nothing of ours, and sends us no signals.

    Signals are kept in since Linux 6.12. Who is not root then has to be `unprivileged`: no program that it
    starts gains rights, as by a setuid bit.
    """
    die_with_parent()
    _prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE)
    if unprivileged:
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _keep_signals_in()


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


def _keep_signals_in() -> None:
    """From now on this process signals, and looks into, what it has started itself, and nothing else."""
    if _LIBC is None or _LIBC.syscall(LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION) < SIGNALS_SINCE:
        return
    rules = (ctypes.c_uint64 * 3)(0, 0, SCOPE_SIGNAL)  # Files, ports, and what is kept in.
    handle = _LIBC.syscall(LANDLOCK_CREATE, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if handle >= 0:
        _LIBC.syscall(LANDLOCK_RESTRICT, handle, 0)
        os.close(handle)


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
