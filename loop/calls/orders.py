"""The page through which the judge orders calls and sees that they are done.

It holds words of 64 bits in memory that both processes map. The judge writes all of them but DONE, OWN_NS and
CAPTURED. The worker carries out orders; the clock is the judge's. No torch.
"""

import gc
import mmap
import os
import select

from loop.calls.invocation import Stage

CONTROL_BYTES = 1 << 16
ORDER, DONE = 0, 8
"""The number of the order, and of the last one that was carried out; each in a cache line of its own."""
OP, COUNT, COLD, OWN_NS = 16, 17, 18, 19
"""What is ordered, how many calls, whether caches are emptied before; nanoseconds by a clock of the worker's."""
CAPTURED = 20
"""Whether a graph holds the calls that were made ready: then the host no longer decides what they compute."""
ROTATIONS = 24
"""Bytes by which each input is rotated, for inputs in a device's memory."""
OFFSETS = 64
"""Where the windows of each call begin, in elements: call by call, input by input."""
MAX_OFFSETS = CONTROL_BYTES // 8 - OFFSETS
LEAVE, READY, RUN, SETTLE, GIVE = range(5)
"""Stop waiting for orders; make ready for some calls; make them; have their results be there, where they lie; put
them into their slots."""


class Bell:
    """Two pipes, as the judge uses them: one wakes the worker, one wakes the judge."""

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
        """Whether the worker rings within that many seconds."""
        if not self._poll.poll(limit_s * 1e3):
            return False
        os.read(self._done, 1)
        return True

    def close(self) -> None:
        """Close the pipes."""
        for handle in (self._orders, self._ring, self._done, self._rung):
            os.close(handle)


class Shared:
    """The worker's view of the memory that it shares with the judge."""

    def __init__(self, handle: int, size: int) -> None:
        self.memory = mmap.mmap(handle, max(size, CONTROL_BYTES))
        self.words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")


def obey(shared: Shared, bell: tuple[int, int] | None, stage: Stage, inputs: int, number: int) -> None:
    """Carry out orders until one says to leave. An exception of a call passes through: its order stays undone.

    `bell`: pipes to sleep at and to ring with; None: both sides watch the memory, each on a core of its own.
    `inputs`: tensors of the call. `number`: the number of the last order before.
    """
    words = shared.words
    was_on = gc.isenabled()
    gc.disable()
    try:
        while True:
            if bell is not None:
                os.read(bell[0], 1)
            last = number
            while (number := words[ORDER]) == last:
                pass
            op = words[OP]
            if op == RUN:
                words[OWN_NS] = stage.run(words[COUNT])
            elif op == READY:
                rotations = words[ROTATIONS : ROTATIONS + inputs].tolist()
                flat = words[OFFSETS : OFFSETS + words[COUNT] * inputs].tolist()
                windows = [flat[call * inputs :][:inputs] for call in range(words[COUNT])]
                stage.ready(windows, rotations, cold=bool(words[COLD]))
                words[CAPTURED] = int(stage.captured)
            elif op == SETTLE:
                stage.settle()
            elif op == GIVE:
                stage.give()
            words[DONE] = number
            if bell is not None:
                os.write(bell[1], b"x")
            if op == LEAVE:
                return
    finally:
        if was_on:
            gc.enable()
