"""How judge and worker wait for each other: asleep, where the judge has no core of its own to watch from."""

import os
import select
from typing import Any

from loop.calls.control import ORDER


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
