"""Memory that a kernel may not touch, and elements that two threads touch at once."""

import numpy
import pytest

from tests.emulator.fixtures import Array, Fixtures, each_seed

SHARED = {
    "shared_beyond_its_end": "touches bytes 256 to 259 of shared memory, the block has 256",
    "shared_across_its_end": "touches bytes 256 to 271 of shared memory, the block has 260",
    "shared_before_its_begin": "touches bytes 4294967292 to 4294967295 of shared memory, the block has 256",
    "shared_that_was_not_asked_for": "touches bytes 0 to 3 of shared memory, the block has 0",
    "shared_misaligned_word": "address 2 of shared memory is not a multiple of 4",
    "shared_misaligned_piece": "address 8 of shared memory is not a multiple of 16",
    "shared_misaligned_row": "shared memory is not a multiple of 16",
}
SIZE = 64
OUTSIDE = "of global memory outside all tensors: at byte"
GLOBAL = {
    ("reads_input_at", SIZE): f"reads 4 bytes {OUTSIDE} 256 of the input, which has 256",
    ("reads_input_at", -1): f"reads 4 bytes {OUTSIDE} -4 of the input",
    ("writes_output_at", SIZE): f"writes 4 bytes {OUTSIDE} 256 of the output",
    ("writes_output_at", -1): f"writes 4 bytes {OUTSIDE} -4 of the output",
    ("copies_input_at", SIZE): f"reads 16 bytes {OUTSIDE} 256 of the input",
    ("writes_input_at", 0): "writes to its input the input",
    ("reads_word_at_byte", 2): "reads global memory at an address that is not a multiple of 4",
    ("reads_word_at_byte", 253): "reads global memory at an address that is not a multiple of 4",
    ("writes_piece_at_byte", 8): "writes global memory at an address that is not a multiple of 16",
}
INSIDE = (
    ("reads_input_at", SIZE - 1),
    ("reads_output_at", 0),
    ("writes_output_at", SIZE - 1),
    ("copies_input_at", 60),
)
CLASHES = {
    "two_blocks_write": "writes the output at byte 0, which block",
    "a_block_reads_what_another_writes": "of the same launch",
    "a_block_writes_what_another_reads": "of the same launch",
    "two_threads_write": "race: writes the output at byte 0, which thread",
    "two_lanes_write": "race: writes the output at byte",
    "a_thread_reads_what_another_wrote": "the output at byte",
}
ORDERED = (
    "global_memory_with_barriers",
    "a_warp_writes_one_value",
    "two_blocks_write_bytes_of_a_word",
    "writes_three_words",
)


def tensors() -> tuple[Array, Array]:
    """An input and an output with room around them, so that a fault would not matter."""
    raw = numpy.zeros(4 * SIZE + 64, numpy.float32)
    begin = -raw.ctypes.data // 4 % 4 + 32
    values = raw[begin : begin + SIZE]
    values[...] = numpy.arange(SIZE)
    return values, raw[begin + 2 * SIZE : begin + 3 * SIZE]


def fault_of(emulated: Fixtures, name: str, offset: int = 0) -> str:
    """Launch a kernel of memory.cu on exposed tensors."""
    values, output = tensors()
    return emulated.fault(name, values, values.nbytes, output, output.nbytes, offset)


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_has_bounds_and_alignment(emulated: Fixtures, name: str) -> None:
    """Those of the launch, to the byte."""
    assert SHARED[name] in emulated.fault(name)


@pytest.mark.parametrize(("name", "offset"), GLOBAL)
def test_global_memory_has_bounds_and_alignment(emulated: Fixtures, name: str, offset: int) -> None:
    """Those of the tensors that were exposed; the nearest one is named. Inputs are not written."""
    assert GLOBAL[name, offset] in fault_of(emulated, name, offset)


@pytest.mark.parametrize(("name", "offset"), INSIDE)
def test_what_lies_inside_may_be_touched(emulated: Fixtures, name: str, offset: int) -> None:
    """The last element may be touched too, and an output may be read."""
    assert "" == fault_of(emulated, name, offset)


@pytest.mark.parametrize("name", CLASHES)
def test_two_that_meet_in_one_element_are_told(
    emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks always race; two threads of a block race without a barrier between them."""
    for _ in each_seed(monkeypatch):
        assert CLASHES[name] in fault_of(emulated, name)


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_or_apart_passes(emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers order global memory inside a block; bytes are elements too; a warp may write one value at once."""
    assert {""} == {fault_of(emulated, name) for _ in each_seed(monkeypatch)}


def test_a_kernel_that_begins_early_may_touch_nothing_before_it_waits(emulated: Fixtures) -> None:
    """The kernel before may still read and write: no load, store or copy."""
    values, output = tensors()
    assert "" == emulated.fault("waits_first", values, values.nbytes, output, output.nbytes, 0)
    assert (output[:8] == 2 * values[:8]).all()
    for name in ("reads_too_early", "writes_too_early", "copies_too_early"):
        fault = emulated.fault(name, values, values.nbytes, output, output.nbytes, 0)
        assert "race: a kernel of launch_early touches global memory before wait_for_previous" in fault
