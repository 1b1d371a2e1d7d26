"""A worker carries out orders that the judge writes into shared memory; the clock is the judge's. No torch."""

import gc
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from loop.calls.control import (
    CAPTURED,
    COLD,
    CONTROL_BYTES,
    COUNT,
    DONE,
    GIVE,
    LEAVE,
    OFFSETS,
    OP,
    OWN_NS,
    READY,
    ROTATIONS,
    RUN,
    SETTLE,
    WorkerBell,
)

Windows = Sequence[Sequence[int]]
"""Where the windows of each call begin: for each call one offset an input, in elements."""


class Stage(ABC):
    """A call with its memory, ready to be made again and again on windows of its inputs."""

    captured = False
    """Whether a graph holds what was made ready last."""
    strays: Sequence[str] = ()
    """Writes outside of tensors that lie in memory of its own, a sentence each."""

    def ready(self, windows: Windows, rotations: Sequence[int], *, cold: bool) -> None:
        """Make ready for these calls: nothing of it is timed."""

    @abstractmethod
    def run(self, count: int) -> int:
        """Make the calls; nanoseconds by a clock that belongs to them, such as a GPU's, or 0.

        `count`: of how many calls; on a GPU how often all of those that were made ready are replayed.
        """

    def settle(self) -> None:
        """Have the result of each call be there, on the device: work that was left for later is done now."""

    def give(self) -> None:
        """Put the result of each call into its slot."""

    def close(self) -> None:
        """Let go of the memory."""


class Nothing(Stage):
    """Calls that do nothing: what an order, and a call itself, cost."""

    def __init__(self, run: Callable[[], object] | None = None) -> None:
        self.calls = run

    def run(self, count: int) -> int:
        """Make so many calls, one after the other, as any other stage does."""
        if self.calls is not None:
            for run in [self.calls] * count:
                run()
        return 0


class Shared:
    """The worker's view of the memory that it shares with the judge."""

    def __init__(self, handle: int, size: int) -> None:
        self.memory = mmap.mmap(handle, max(size, CONTROL_BYTES))
        self.words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")

    def windows(self, inputs: int) -> list[list[int]]:
        """The windows of the calls that are ordered."""
        count = self.words[COUNT] * inputs
        flat = self.words[OFFSETS : OFFSETS + count].tolist()
        return [flat[first : first + inputs] for first in range(0, count, inputs)]


def obey(shared: Shared, bell: WorkerBell, stage: Stage, inputs: int, seen: int) -> None:
    """Carry out orders until one says to leave. What a call raises passes through: its order stays undone.

    `seen`: the number of the last order before.
    """
    words = shared.words
    was_on = gc.isenabled()
    gc.disable()
    try:
        while True:
            seen = bell.wait(words, seen)
            op = words[OP]
            if op == RUN:
                words[OWN_NS] = stage.run(words[COUNT])
            elif op == READY:
                rotations = words[ROTATIONS : ROTATIONS + inputs].tolist()
                stage.ready(shared.windows(inputs), rotations, cold=bool(words[COLD]))
                words[CAPTURED] = int(stage.captured)
            elif op == SETTLE:
                stage.settle()
            elif op == GIVE:
                stage.give()
            words[DONE] = seen
            bell.ring()
            if op == LEAVE:
                return
    finally:
        if was_on:
            gc.enable()
