"""Hardware counters of this process and its threads, by perf_event_open(2); unknown where there are none."""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from pathlib import Path

SYSCALLS = {"x86_64": 298, "aarch64": 241}
"""Number of perf_event_open by machine."""
EVENTS = {"cycles": 0, "instructions": 1, "cache_misses": 3}
"""Name to the event's number among the generic hardware events (`enum perf_hw_id`)."""
DISABLED, INHERIT, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
TIMES = 1 << 0 | 1 << 1
"""Read with the count how long it was enabled, and how long it really counted."""
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
REASONS = {
    errno.EACCES: "perf_event_open is not permitted here",
    errno.EPERM: "perf_event_open is not permitted here",
    errno.ENOSYS: "this system has no perf_event_open",
    errno.ENOENT: "this machine offers none, like most virtual machines",
    errno.ENODEV: "this machine offers none, like most virtual machines",
    errno.EOPNOTSUPP: "this machine offers none, like most virtual machines",
}


class Attributes(ctypes.Structure):
    """`struct perf_event_attr`, its first version."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
    )


class Counters:
    """Counts of everything the process does between `start` and `stop`, in all threads it has or begins meanwhile.

    A counter that cannot be had is None, never zero, and `why_not` says why. Use as a context manager, or `close`.
    """

    def __init__(self) -> None:
        self.why_not = ""
        """Why counts are unknown; empty while all are known."""
        self._handles: dict[str, list[int]] = {name: [] for name in EVENTS}

    def open(self) -> bool:
        """Open a counter of each kind for every thread that there is; whether any could be had."""
        for task in sorted(Path("/proc/self/task").glob("*")) or [Path("0")]:  # 0: the calling thread.
            for name, event in EVENTS.items():
                try:
                    self._handles[name].append(open_event(event, int(task.name)))
                except OSError as error:
                    if error.errno != errno.ESRCH:  # That thread has ended meanwhile.
                        self.why_not = self.why_not or reason(error)
        return any(self._handles.values())

    def start(self) -> None:
        """Count from zero."""
        for handle in self._all():
            fcntl.ioctl(handle, RESET, 0)
            fcntl.ioctl(handle, ENABLE, 0)

    def stop(self) -> dict[str, int | None]:
        """Counts since `start`, by name, over all threads; None for a counter that never got its turn."""
        for handle in self._all():
            fcntl.ioctl(handle, DISABLE, 0)
        totals: dict[str, int | None] = {}
        for name, handles in self._handles.items():
            counts = [scaled(os.read(handle, 24)) for handle in handles]
            known = [count for count in counts if count is not None]
            totals[name] = sum(known) if counts and len(known) == len(counts) else None
        return totals

    def _all(self) -> list[int]:
        return [handle for handles in self._handles.values() for handle in handles]

    def close(self) -> None:
        """Give the counters back."""
        for handle in self._all():
            os.close(handle)
        self._handles = {name: [] for name in EVENTS}

    def __enter__(self) -> "Counters":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_event(event: int, thread: int) -> int:
    """A disabled counter of a thread and of all that it begins, outside the kernel. Raises OSError."""
    number = SYSCALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    attributes = Attributes(size=ctypes.sizeof(Attributes), config=event, read_format=TIMES, flags=flags)
    libc = ctypes.CDLL(None, use_errno=True)
    # -1, -1: on any core, in no group.
    handle = libc.syscall(number, ctypes.byref(attributes), thread, -1, -1, ctypes.c_ulong(0))
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(handle)


def reason(error: OSError, paranoid: Path = PARANOID) -> str:
    """Why a counter cannot be had, in words."""
    words = REASONS.get(error.errno or 0, f"perf_event_open: {error.strerror}")
    if error.errno in (errno.EACCES, errno.EPERM) and paranoid.is_file():
        words += f" (kernel.perf_event_paranoid is {paranoid.read_text().strip()}; 2 or less allows it)"
    return words


def scaled(data: bytes) -> int | None:
    """A count, scaled up when the counter had to share its place; None when it never counted while enabled."""
    value, enabled, running = struct.unpack("QQQ", data)
    if running == 0:
        return 0 if enabled == 0 else None
    return int(value * enabled / running)
