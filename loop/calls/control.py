"""The page through which the judge orders calls and sees that they are done. Plain numbers: both sides read it.

Words of 64 bits in memory that both processes map. The judge writes everything but DONE, OWN_NS and CAPTURED.
"""

import os
import select
from typing import Any


class Bell:
    """The judge's side. Two pipes: one to wake the worker, one to be woken."""

    def __init__(self) -> None:
        self._orders, self._ring = os.pipe()
        self._done, self._rung = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)

    @property
    def handles(self) -> tuple[int, int]:
        """The worker's ends."""
        return self._orders, self._rung

    def ring(self) -> None:
        """Wake the worker."""
        os.write(self._ring, b"x")

    def rung(self, limit_s: float) -> bool:
        """Whether the worker has rung within so many seconds."""
        if not self._poll.poll(limit_s * 1e3):
            return False
        os.read(self._done, 1)
        return True

    def close(self) -> None:
        """Close the pipes."""
        for handle in (self._orders, self._ring, self._done, self._rung):
            os.close(handle)


class WorkerBell:
    """How the worker waits for the next order, and says that one is done."""

    def __init__(self, handles: tuple[int, int] | None) -> None:
        self.handles = handles
        """Pipes to sleep at and to ring with; None: both sides watch the memory, each on a core of its own."""

    def wait(self, words: Any, seen: int) -> int:
        """The number of the next order."""
        if self.handles is not None:
            os.read(self.handles[0], 1)
        while True:
            number: int = words[ORDER]
            if number != seen:
                return number

    def ring(self) -> None:
        """Wake the judge."""
        if self.handles is not None:
            os.write(self.handles[1], b"x")


CONTROL_BYTES = 1 << 16
ORDER, DONE = 0, 8
"""The number of the order, and of the last one that was carried out; each in a cache line of its own."""
OP, COUNT, COLD, OWN_NS = 16, 17, 18, 19
"""What is ordered, how many calls, whether caches are emptied before; nanoseconds by a clock of the worker's."""
CAPTURED = 20
"""Whether a graph holds the calls that were made ready: nothing on the host decides any more what they compute."""
ROTATIONS = 24
"""Bytes by which each input is rotated, for inputs that lie in a device's memory."""
OFFSETS = 64
"""Where the windows of each call begin, in elements: call by call, input by input."""
MAX_OFFSETS = CONTROL_BYTES // 8 - OFFSETS

LEAVE, READY, RUN, SETTLE, GIVE = range(5)
"""Stop waiting for orders; make ready for some calls; make them; have their results be there, where they lie; put
them into their slots."""
