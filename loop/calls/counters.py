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
FORBIDDEN, NO_SUCH = (errno.EACCES, errno.EPERM), (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
REASONS = {
    **dict.fromkeys(FORBIDDEN, "perf_event_open is not permitted here"),
    **dict.fromkeys(NO_SUCH, "this machine offers none, like most virtual machines"),
    errno.ENOSYS: "this system has no perf_event_open",
}
ATTRIBUTES = struct.Struct("IIQQQQQIIQ")
"""`struct perf_event_attr`, its first version: type, size, config, period, sample type, read format, flags, ..."""


class Counters:
    """Counts of everything the process does between `start` and `stop`, in all threads it has or begins meanwhile.

    A counter that cannot be had is None, never zero, and `why_not` says why. Use as a context manager.
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

    def _tell(self, *orders: int) -> None:
        for handles in self._handles.values():
            for handle in handles:
                for order in orders:
                    fcntl.ioctl(handle, order, 0)

    def start(self) -> None:
        """Count from zero."""
        self._tell(RESET, ENABLE)

    def stop(self) -> dict[str, int | None]:
        """Counts since `start`, by name, over all threads; None for a counter that never got its turn."""
        self._tell(DISABLE)
        totals: dict[str, int | None] = {}
        for name, handles in self._handles.items():
            counts = [scaled(os.read(handle, 24)) for handle in handles]
            known = [count for count in counts if count is not None]
            totals[name] = sum(known) if counts and len(known) == len(counts) else None
        return totals

    def __enter__(self) -> "Counters":
        return self

    def __exit__(self, *_: object) -> None:
        for handles in self._handles.values():
            while handles:
                os.close(handles.pop())


def open_event(event: int, thread: int) -> int:
    """A disabled counter of a thread and of all that it begins, outside the kernel. Raises OSError."""
    number = SYSCALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    attributes = ATTRIBUTES.pack(0, ATTRIBUTES.size, event, 0, 0, TIMES, flags, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.syscall(number, attributes, thread, -1, -1, ctypes.c_ulong(0))  # On any core, in no group.
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(handle)


def reason(error: OSError, paranoid: Path = PARANOID) -> str:
    """Why a counter cannot be had, in words."""
    words = REASONS.get(error.errno or 0, f"perf_event_open: {error.strerror}")
    if error.errno in FORBIDDEN and paranoid.is_file():
        words += f" (kernel.perf_event_paranoid is {paranoid.read_text().strip()}; 2 or less allows it)"
    return words


def scaled(data: bytes) -> int | None:
    """A count, scaled up when the counter had to share its place; None when it never counted while enabled."""
    value, enabled, running = struct.unpack("QQQ", data)
    if running == 0:
        return 0 if enabled == 0 else None
    return int(value * enabled / running)
