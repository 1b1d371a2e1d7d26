"""Memory that the judge shares with one worker: inputs that only the judge makes, and a slot for each output.

The worker computes in it and the judge looks into it, so that nothing a variant does in its own process stands
between a result and its judge.
"""

import ctypes
import fcntl
import gc
import mmap
import os
import select
import tempfile
from collections.abc import Sequence

from loop.calls.call import POISON, Call, TensorFile
from loop.calls.invocation import Stage

CONTROL_BYTES = 1 << 16
ORDER, DONE = 0, 8
"""The number of the order, and of the last one that was carried out; each in a cache line of its own."""
OP, COUNT, OWN_NS = 16, 17, 19
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


def obey(memory: mmap.mmap, bell: tuple[int, int] | None, stage: Stage, inputs: int, number: int) -> None:
    """Carry out orders until one says to leave. An exception of a call passes through: its order stays undone.

    `memory`: what it shares with the judge.
    `bell`: pipes to sleep at and to ring with; None: both sides watch the memory, each on a core of its own.
    `inputs`: tensors of the call. `number`: the number of the last order before.
    """
    words = memoryview(memory)[:CONTROL_BYTES].cast("Q")
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
                stage.ready(windows, rotations)
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
        words.release()
        if was_on:
            gc.enable()


ALIGNMENT = 256
GAP_BYTES = 4096
"""Before and after each tensor, at least: what is written there harms no other tensor."""
MOST_CALLS = 256
"""Calls of a sample at most."""
SLOTS_BYTES = 4 << 20
"""Memory that the outputs of a sample may take together; a single one may take more."""
HUGE_BYTES = 128 << 20
"""From this size on large pages save more than they take."""


def new_file() -> int:
    """The descriptor of a file without a name: it is gone with the last process that holds it. It only grows.

    A worker that made it shorter would end us: who reads behind the end of a mapped file is killed.
    """
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("loop-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        return handle
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Values:
    """What the judge made for one input, with the room for windows; shared by all sides that read it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._twice: ctypes.Array[ctypes.c_char] | None = None

    def write(self, address: int, count: int) -> None:
        """Write the values to an address, rotated by `count` bytes."""
        if self.data and self._twice is None:
            self._twice = ctypes.create_string_buffer(self.data + self.data, 2 * len(self.data))
        if self._twice is not None:
            ctypes.memmove(address, ctypes.addressof(self._twice) + count, len(self.data))


class Pool:
    """The values of one input in the shared memory."""

    def __init__(self, tensor: TensorFile, values: Values, offset: int) -> None:
        """`offset`: where it begins, in bytes."""
        self.tensor, self.values, self.offset = tensor, values, offset
        self.turned = 0
        """Bytes by which it is rotated."""

    def write(self, base: int, count: int) -> None:
        """Write the values rotated by `count` bytes."""
        self.values.write(base + self.offset, count)
        self.turned = count


class Arena:
    """The shared memory of one worker; use `close` when it has ended."""

    def __init__(self) -> None:
        self.handle = new_file()
        """File descriptor that the worker inherits."""
        self.size = CONTROL_BYTES
        self.pools: list[Pool] = []
        self.slots: list[int] = []
        """Where the output of each call begins, in bytes."""
        self.slot_bytes = 0
        self.updated: frozenset[int] = frozenset()
        """Numbers of the inputs that a call changes in place."""
        self._spoilt: list[tuple[int, bytes]] = []
        """Places of inputs whose elements are others until the very order, and their true bytes."""
        os.ftruncate(self.handle, self.size)
        self._map()

    def _map(self) -> None:
        """Map the file, also again after it grew; the anchor gives its address, and keeps it from being closed."""
        self.memory = mmap.mmap(self.handle, self.size)
        if self.size > HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")
        self._anchor = ctypes.c_char.from_buffer(self.memory)
        self.base = ctypes.addressof(self._anchor)

    def _unmap(self) -> None:
        self.words.release()
        del self._anchor
        self.memory.close()

    def lay_out(self, call: Call, values: Sequence[Values], most: int = MOST_CALLS) -> None:
        """Make room for a call's inputs, which have these values, and for the outputs of `most` calls at most."""
        self.slot_bytes, self.updated = call.output.size, call.updated
        by_words, by_bytes = MAX_OFFSETS // max(len(call.inputs), 1), SLOTS_BYTES // max(self.slot_bytes, 1)
        count = max(1, min(most, MOST_CALLS, by_words, by_bytes))
        begins, end = [], CONTROL_BYTES
        for size in [*(len(data.data) for data in values), *[self.slot_bytes] * count]:
            begins.append(-(-(end + GAP_BYTES) // ALIGNMENT) * ALIGNMENT)
            end = begins[-1] + size
        self._resize(end + GAP_BYTES)
        self.pools = [Pool(*pool) for pool in zip(call.inputs, values, begins, strict=False)]
        self.slots = begins[len(values) :]
        for pool in self.pools:
            pool.write(self.base, 0)

    def _resize(self, size: int) -> None:
        if hasattr(mmap, "MADV_REMOVE") and self.size > CONTROL_BYTES:  # What was there before is gone.
            self.memory.madvise(mmap.MADV_REMOVE, CONTROL_BYTES, self.size - CONTROL_BYTES)
        self._unmap()
        self.size = -(-max(size, CONTROL_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        if self.size > os.fstat(self.handle).st_size:
            os.ftruncate(self.handle, self.size)
        self._map()

    def clear(self) -> None:
        """Give the memory of the tensors back."""
        self.pools, self.slots = [], []
        self._resize(CONTROL_BYTES)

    def poison(self, count: int) -> None:
        """Make the first outputs NaN, so that an element nobody writes shows."""
        for slot in self.slots[:count]:
            ctypes.memset(self.base + slot, POISON, self.slot_bytes)

    def spoil(self, number: int, element: int, mask: int) -> None:
        """Change an element of an input until `mend`: flip the bits of `mask`, or make it NaN where that is 0."""
        pool = self.pools[number]
        item = pool.tensor.item
        at = pool.offset + element * item
        true = self.memory[at : at + item]
        self._spoilt.append((at, true))
        flipped = (int.from_bytes(true, "little") ^ mask).to_bytes(item, "little")
        self.memory[at : at + item] = flipped if mask else bytes([POISON]) * item

    def mend(self) -> None:
        """Give spoilt elements their values again."""
        while self._spoilt:
            at, true = self._spoilt.pop()
            self.memory[at : at + len(true)] = true

    def glimpse(self, number: int, places: Sequence[int]) -> bytes:
        """Some bytes of the output of one call."""
        begin = self.slots[number]
        return bytes(self.memory[begin + place] for place in places)

    def output(self, number: int) -> bytes:
        """The output of one call."""
        return self.memory[self.slots[number] : self.slots[number] + self.slot_bytes]

    def poisoned(self, count: int) -> bool:
        """Whether the output of one of the first calls is still poison from end to end: nobody wrote it."""
        whole = bytes([POISON]) * self.slot_bytes
        return bool(whole) and any(self.output(number) == whole for number in range(count))

    def changed(self) -> list[str]:
        """Names of inputs that do not hold what the judge wrote."""
        names = []
        for n, pool in enumerate(self.pools):
            data, turned = pool.values.data, pool.turned
            now = self.memory[pool.offset : pool.offset + len(data)]
            if n not in self.updated and now != data[turned:] + data[:turned]:
                names.append(pool.tensor.name)
        return names

    def close(self) -> None:
        """Give everything back."""
        self._unmap()
        os.close(self.handle)
