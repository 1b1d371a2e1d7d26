"""Memory shared by the judge and one worker: inputs that the judge writes, and a place for each
call's output. The judge reads results directly, so a variant cannot change them on the way."""

import fcntl
import gc
import mmap
import os
from collections.abc import Sequence

from loop.calls.call import POISON, Call, TensorFile
from loop.calls.invocation import CONTROL_BYTES, Stage, place_tensors
from loop.model.dtypes import is_floating

MOST_CALLS = 256  # Maximum number of calls in a sample.
MAX_OUTPUTS_BYTES = 4 << 20  # Maximum memory for a sample's outputs. A single one may exceed it.
ORDER, DONE_ORDER = 0, 8
"""Words with the number of the order and of the last completed one, each in its own cache line."""
ORDER_KIND, CALL_COUNT, WORKER_NS = 16, 17, 19
"""Words with the kind of order, the number of calls, and nanoseconds by the worker's own clock."""
GRAPH_NODES = 20  # Word: nodes of the CUDA graph of the calls; 0: no graph, the host may interfere.
ROTATIONS = 24  # First word with the rotation in bytes of each input, for inputs in device memory.
WINDOW_OFFSETS = 64  # First word with the window offsets in elements: call by call, input by input.
MAX_OFFSETS = CONTROL_BYTES // 8 - WINDOW_OFFSETS
LEAVE, PREPARE, RUN, FINISH, COPY_RESULTS = range(5)
"""Orders: stop obeying; prepare calls; run them; finish results on the device; copy into slots."""


def obey(memory: mmap.mmap, bell: int | None, stage: Stage, inputs: int, order_number: int) -> None:
    """Carry out the judge's orders in the worker, until the order LEAVE. An exception of a call
    passes through; its order is not reported as done. The judge writes kind and arguments of an
    order to control words in `memory`, and last a new number to the word ORDER. `order_number`:
    that of the last order carried out before. `bell`: socket to wait on and to wake the judge by,
    where both share a core; None: both sides poll, each on its own core. `inputs`: their number."""
    control_words = memoryview(memory)[:CONTROL_BYTES].cast("Q")
    gc_was_enabled = gc.isenabled()
    gc.disable()  # No garbage collection within a timed call.
    try:
        while True:
            if bell is not None:
                os.read(bell, 1)
            last_number = order_number
            while (order_number := control_words[ORDER]) == last_number:
                pass
            kind = control_words[ORDER_KIND]
            if kind == RUN:
                control_words[WORKER_NS] = stage.run(control_words[CALL_COUNT])
            elif kind == PREPARE:
                rotations = control_words[ROTATIONS : ROTATIONS + inputs].tolist()
                begins = [WINDOW_OFFSETS + n * inputs for n in range(control_words[CALL_COUNT])]
                windows = [control_words[begin : begin + inputs].tolist() for begin in begins]
                stage.prepare_calls(windows, rotations)
                control_words[GRAPH_NODES] = stage.graph_nodes
            elif kind == FINISH:
                stage.finish_results()
            elif kind == COPY_RESULTS:
                stage.copy_results()
            control_words[DONE_ORDER] = order_number
            if bell is not None:
                os.write(bell, b"x")
            if kind == LEAVE:
                return
    finally:
        control_words.release()
        if gc_was_enabled:
            gc.enable()


class Pool:
    """The values of one input in shared memory, from which calls take their windows."""

    def __init__(self, tensor: TensorFile, doubled_values: bytes, offset: int) -> None:
        """`doubled_values`: the judge's values twice. `offset`: first byte in shared memory."""
        self.tensor, self._doubled_values = tensor, doubled_values
        self.offset, self.end = offset, offset + tensor.pool_nbytes

    def write_rotated(self, memory: mmap.mmap, rotation_bytes: int) -> None:
        """Write the values rotated by so many bytes, so that each address gets another value."""
        end = rotation_bytes + self.tensor.pool_nbytes
        self.current_values = memoryview(self._doubled_values)[rotation_bytes:end]
        memory[self.offset : self.end] = self.current_values


class Arena:
    """The shared memory of one worker. Call `close` after the worker has ended."""

    def __init__(self) -> None:
        self.file_descriptor = os.memfd_create("loop-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """Anonymous file that the worker inherits."""
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL  # A read past its end would end the judge.
        fcntl.fcntl(self.file_descriptor, fcntl.F_ADD_SEALS, seals)
        self.pools: list[Pool] = []
        self.output_offsets: list[int] = []  # First byte of each call's output.
        self.output_bytes = 0
        self.updated_inputs: frozenset[int] = frozenset()  # Positions of inputs changed in place.
        self._changed_elements: list[tuple[int, bytes]] = []
        """(byte, original bytes) of input elements changed by `change_element`."""
        os.ftruncate(self.file_descriptor, CONTROL_BYTES)
        self.memory = mmap.mmap(self.file_descriptor, CONTROL_BYTES)
        self.control_words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")

    def lay_out(self, call: Call, doubled_values: Sequence[bytes], most_calls: int) -> None:
        """Discard what is there. Reserve memory for a call's inputs, with these values (each twice
        in a row), and for outputs of as many calls as the limits allow, at most `most_calls`."""
        self.output_bytes, self.updated_inputs = call.output.nbytes, call.updated_inputs
        most_by_words = MAX_OFFSETS // max(len(call.inputs), 1)
        most_by_bytes = MAX_OUTPUTS_BYTES // max(self.output_bytes, 1)
        calls = max(1, min(most_calls, MOST_CALLS, most_by_words, most_by_bytes))
        input_offsets, output_offsets, size = place_tensors(call, calls)
        self.free_tensors(size)
        self.output_offsets = output_offsets
        for fields in zip(call.inputs, doubled_values, input_offsets, strict=True):
            self.pools.append(Pool(*fields))
            self.pools[-1].write_rotated(self.memory, rotation_bytes=0)

    def free_tensors(self, size: int = CONTROL_BYTES) -> None:
        """Free the memory of the tensors; the control words stay. `size`: bytes to map."""
        self.pools, self.output_offsets = [], []
        if len(self.memory) > CONTROL_BYTES:
            self.memory.madvise(mmap.MADV_REMOVE, CONTROL_BYTES, len(self.memory) - CONTROL_BYTES)
        self.control_words.release()  # Views of the mapping would block closing it.
        self.memory.close()
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        if size > os.fstat(self.file_descriptor).st_size:  # The file is sealed: it only grows.
            os.ftruncate(self.file_descriptor, size)
        self.memory = mmap.mmap(self.file_descriptor, size)
        self.control_words = memoryview(self.memory)[:CONTROL_BYTES].cast("Q")

    def poison_outputs(self, calls: int) -> None:
        """Fill the outputs of the first `calls` calls with NaN, so that unwritten elements show."""
        poison = bytes([POISON]) * self.output_bytes
        for offset in self.output_offsets[:calls]:
            self.memory[offset : offset + self.output_bytes] = poison

    def change_element(self, input_number: int, element: int, flipped_bits: int) -> None:
        """Change one element of an input until `restore_elements`, so that a result computed ahead
        of the order is wrong. `flipped_bits`: mask of bits to flip; 0: make the element NaN."""
        pool = self.pools[input_number]
        itemsize = pool.tensor.itemsize
        begin, changed = pool.offset + element * itemsize, bytes([POISON]) * itemsize
        original = self.memory[begin : begin + itemsize]
        self._changed_elements.append((begin, original))
        if flipped_bits:
            number = int.from_bytes(original, "little") ^ flipped_bits
            changed = number.to_bytes(itemsize, "little")
        self.memory[begin : begin + itemsize] = changed

    def flip_last_bits(self) -> None:
        """Flip the last bit of every floating-point element until inputs are written again. The
        values are new, but compare as before, so a processor predicts the same branches."""
        flipped = bytes(byte ^ 1 for byte in range(256))
        for pool in self.pools:
            if is_floating(pool.tensor.dtype):
                lowest_bytes = slice(pool.offset, pool.end, pool.tensor.itemsize)
                self.memory[lowest_bytes] = self.memory[lowest_bytes].translate(flipped)

    def restore_elements(self) -> None:
        """Restore all elements changed by `change_element`, the latest first."""
        while self._changed_elements:
            begin, original = self._changed_elements.pop()
            self.memory[begin : begin + len(original)] = original

    def read_output_bytes(self, call_number: int, positions: Sequence[int]) -> bytes:
        """Read single bytes of a call's output. `positions`: counted from its first byte."""
        begin = self.output_offsets[call_number]
        return bytes(self.memory[begin + position] for position in positions)

    def read_output(self, call_number: int) -> bytes:
        """Read all bytes of a call's output."""
        begin = self.output_offsets[call_number]
        return self.memory[begin : begin + self.output_bytes]

    def has_unwritten_output(self, calls: int) -> bool:
        """Whether an output of the first `calls` calls is all NaN, as `poison_outputs` left it."""
        poison = bytes([POISON]) * self.output_bytes
        return bool(poison) and any(self.read_output(number) == poison for number in range(calls))

    def changed_inputs(self) -> list[str]:
        """Names of inputs that differ from the judge's values, except those a call may update."""
        changed = []
        for number, pool in enumerate(self.pools):
            if number in self.updated_inputs:
                continue
            judge_values = bytes(pool.current_values)  # Comparing a memoryview is slow.
            if self.memory[pool.offset : pool.end] != judge_values:
                changed.append(pool.tensor.name)
        return changed

    def close(self) -> None:
        self.control_words.release()
        self.memory.close()
        os.close(self.file_descriptor)
