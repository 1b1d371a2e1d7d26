"""Memory shared by the judge and one worker: inputs that the judge writes, and a slot for each
output. The judge reads results directly, so a variant cannot change them on the way."""

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
"""Words with the number of the order and of the last completed one, each in its own cache line."""
OP, COUNT, WORKER_NS = 16, 17, 19
"""Words with the kind of order, the number of calls, and nanoseconds by the worker's own clock."""
CAPTURED = 20
"""Word: whether a CUDA graph holds the prepared calls, so that the host cannot affect results."""
ROTATIONS = 24
"""First word with the rotation in bytes of each input, for inputs in device memory."""
OFFSETS = 64
"""First word with the window offsets in elements: call by call, input by input."""
MAX_OFFSETS = CONTROL_BYTES // 8 - OFFSETS
LEAVE, READY, RUN, SETTLE, GIVE = range(5)
"""Orders: stop obeying; prepare calls; run them; finish results on the device; copy into slots."""


class Bell:
    """Two pipes by which judge and worker wake each other, if they share a core."""

    def __init__(self) -> None:
        self._orders, self._ring = os.pipe()
        self._done, self._rung = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)

    @property
    def worker_ends(self) -> tuple[int, int]:
        """The worker's ends: it reads the first and writes the second."""
        return self._orders, self._rung

    def wake_worker(self) -> None:
        """Wake the worker."""
        os.write(self._ring, b"x")

    def wait_for_worker(self, limit_s: float) -> bool:
        """Wait up to `limit_s` seconds for the worker; return whether it rang."""
        if not self._poll.poll(limit_s * 1e3):
            return False
        os.read(self._done, 1)
        return True

    def close(self) -> None:
        """Close the pipes."""
        for handle in (self._orders, self._ring, self._done, self._rung):
            os.close(handle)


def obey(memory: mmap.mmap, bell: tuple[int, int] | None, stage: Stage, inputs: int, number: int) -> None:
    """Carry out orders in the worker until LEAVE. An exception of a call passes through; its order
    stays undone.

    `memory`: shared memory. `bell`: pipes to wait on and to ring; None: both sides poll, each on
    its own core. `inputs`: number of input tensors. `number`: number of the previous order.
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
                words[WORKER_NS] = stage.run(words[COUNT])
            elif op == READY:
                rotations = words[ROTATIONS : ROTATIONS + inputs].tolist()
                flat = words[OFFSETS : OFFSETS + words[COUNT] * inputs].tolist()
                windows = [flat[call * inputs :][:inputs] for call in range(words[COUNT])]
                stage.prepare_calls(windows, rotations)
                words[CAPTURED] = int(stage.is_captured)
            elif op == SETTLE:
                stage.finish_results()
            elif op == GIVE:
                stage.copy_results()
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
"""Minimum gap between tensors, so that a small out-of-bounds write damages no other tensor."""
MOST_CALLS = 256
"""Maximum number of calls in a sample."""
SLOTS_BYTES = 4 << 20
"""Maximum memory for all outputs of a sample. A single output may exceed it."""
HUGE_BYTES = 128 << 20
"""From this size on, request huge pages."""


def new_file() -> int:
    """Descriptor of an anonymous file that can grow but not shrink. If a worker could shrink the
    file, the judge would crash (SIGBUS) when it reads past the end."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("loop-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        return handle
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class InputValues:
    """The judge's values of one input, with room for windows; all sides share them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._twice: ctypes.Array[ctypes.c_char] | None = None

    def write_rotated(self, address: int, count: int) -> None:
        """Copy the values to an address, rotated by `count` bytes."""
        if self.data and self._twice is None:
            self._twice = ctypes.create_string_buffer(self.data + self.data, 2 * len(self.data))
        if self._twice is not None:
            ctypes.memmove(address, ctypes.addressof(self._twice) + count, len(self.data))


class Pool:
    """The values of one input in shared memory."""

    def __init__(self, tensor: TensorFile, values: InputValues, offset: int) -> None:
        """`offset`: first byte in shared memory."""
        self.tensor, self.values, self.offset = tensor, values, offset
        self.rotation_bytes = 0
        """Bytes by which the values are rotated now."""

    def write_rotated(self, base: int, count: int) -> None:
        """Write the values rotated by `count` bytes."""
        self.values.write_rotated(base + self.offset, count)
        self.rotation_bytes = count


class Arena:
    """The shared memory of one worker. Call `close` after the worker has ended."""

    def __init__(self) -> None:
        self.handle = new_file()
        """File descriptor that the worker inherits."""
        self.size = CONTROL_BYTES
        self.pools: list[Pool] = []
        self.output_offsets: list[int] = []
        """First byte of each call's output."""
        self.output_bytes = 0
        self.updated_inputs: frozenset[int] = frozenset()
        """Positions of the inputs that a call changes in place."""
        self._spoilt: list[tuple[int, bytes]] = []
        """(byte, original bytes) of input elements changed by `spoil`."""
        os.ftruncate(self.handle, self.size)
        self._map()

    def _map(self) -> None:
        """Map the file, again after each growth. The anchor gives the address and blocks a
        close."""
        self.memory = mmap.mmap(self.handle, self.size)
        if self.size > HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.control_words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")
        self._anchor = ctypes.c_char.from_buffer(self.memory)
        self.base_address = ctypes.addressof(self._anchor)

    def _unmap(self) -> None:
        self.control_words.release()
        del self._anchor
        self.memory.close()

    def lay_out(self, call: Call, values: Sequence[InputValues], most: int = MOST_CALLS) -> None:
        """Reserve memory for a call's inputs, with these values, and for up to `most` outputs."""
        self.output_bytes, self.updated_inputs = call.output.nbytes, call.updated_inputs
        by_words, by_bytes = MAX_OFFSETS // max(len(call.inputs), 1), SLOTS_BYTES // max(self.output_bytes, 1)
        count = max(1, min(most, MOST_CALLS, by_words, by_bytes))
        begins, end = [], CONTROL_BYTES
        for size in [*(len(data.data) for data in values), *[self.output_bytes] * count]:
            begins.append(-(-(end + GAP_BYTES) // ALIGNMENT) * ALIGNMENT)
            end = begins[-1] + size
        self._resize(end + GAP_BYTES)
        self.pools = [Pool(*pool) for pool in zip(call.inputs, values, begins, strict=False)]
        self.output_offsets = begins[len(values) :]
        for pool in self.pools:
            pool.write_rotated(self.base_address, 0)

    def _resize(self, size: int) -> None:
        """Change the size of the mapping; the file itself only grows."""
        if hasattr(mmap, "MADV_REMOVE") and self.size > CONTROL_BYTES:  # Discard the old contents.
            self.memory.madvise(mmap.MADV_REMOVE, CONTROL_BYTES, self.size - CONTROL_BYTES)
        self._unmap()
        self.size = -(-max(size, CONTROL_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        if self.size > os.fstat(self.handle).st_size:
            os.ftruncate(self.handle, self.size)
        self._map()

    def free_tensors(self) -> None:
        """Free the memory of the tensors."""
        self.pools, self.output_offsets = [], []
        self._resize(CONTROL_BYTES)

    def poison_outputs(self, count: int) -> None:
        """Fill the first `count` outputs with NaN, so that unwritten elements show."""
        for slot in self.output_offsets[:count]:
            ctypes.memset(self.base_address + slot, POISON, self.output_bytes)

    def change_element(self, number: int, element: int, mask: int) -> None:
        """Change one input element until `mend`: flip the bits of `mask`, or make it NaN if 0."""
        pool = self.pools[number]
        item = pool.tensor.itemsize
        at = pool.offset + element * item
        true = self.memory[at : at + item]
        self._spoilt.append((at, true))
        flipped = (int.from_bytes(true, "little") ^ mask).to_bytes(item, "little")
        self.memory[at : at + item] = flipped if mask else bytes([POISON]) * item

    def restore_elements(self) -> None:
        """Restore all elements changed by `spoil`."""
        while self._spoilt:
            at, true = self._spoilt.pop()
            self.memory[at : at + len(true)] = true

    def read_output_bytes(self, number: int, places: Sequence[int]) -> bytes:
        """Read single bytes of the output of call `number`."""
        begin = self.output_offsets[number]
        return bytes(self.memory[begin + place] for place in places)

    def read_output(self, number: int) -> bytes:
        """Read the output of call `number`."""
        return self.memory[self.output_offsets[number] : self.output_offsets[number] + self.output_bytes]

    def has_unwritten_output(self, count: int) -> bool:
        """Whether one of the first `count` outputs was never written: it is all poison."""
        whole = bytes([POISON]) * self.output_bytes
        return bool(whole) and any(self.read_output(number) == whole for number in range(count))

    def changed_inputs(self) -> list[str]:
        """Names of inputs that differ from the judge's values, except those a call may update."""
        names = []
        for n, pool in enumerate(self.pools):
            data, turned = pool.values.data, pool.rotation_bytes  # Rotated, so that each call sees other values.
            now = self.memory[pool.offset : pool.offset + len(data)]
            if n not in self.updated_inputs and now != data[turned:] + data[:turned]:
                names.append(pool.tensor.name)
        return names

    def close(self) -> None:
        """Unmap the memory and close the file."""
        self._unmap()
        os.close(self.handle)
