"""How a judge without a core of its own sleeps until its worker has carried out an order."""

import os
import select


class Bell:
    """Two pipes: one to wake the worker, one to be woken."""

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
