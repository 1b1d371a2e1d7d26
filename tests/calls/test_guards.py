"""What stands around tensors: several kinds of value, others each time, none that arithmetic brings back."""

import numpy
import pytest

from loop.calls.memory import KINDS, LARGEST, LOWEST, MIXED, NAN, NEAR_ZERO, Buffer, Guard, draw_guard
from loop.model.dtypes import FLOATS, ITEM_SIZES

COUNT = 700


def contents(kind: str, dtype: str) -> numpy.ndarray:
    """A guard's contents as numbers, float64."""
    data = Buffer(64, dtype=dtype).guard_contents(draw_guard(kind), COUNT * ITEM_SIZES[dtype])
    if dtype == "bfloat16":
        data = (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).tobytes()
    with numpy.errstate(invalid="ignore"):
        return numpy.frombuffer(data, dtype.replace("bfloat16", "float32")).astype("f8")


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_kind_is_what_it_says(dtype: str) -> None:
    """In every element type: NaN, the largest numbers of either sign, and what is next to nothing."""
    largest = {"float16": 6e4, "float64": 1e308}.get(dtype, 3e38)
    smallest = {"float16": 6.2e-5, "float64": 2.3e-308}.get(dtype, 1.2e-38)
    assert numpy.isnan(contents(NAN, dtype)).all()
    assert (contents(LARGEST, dtype) >= largest / 2.1).all()
    assert (contents(LOWEST, dtype) <= -largest / 2.1).all()
    small = contents(NEAR_ZERO, dtype)
    assert (numpy.abs(small) <= smallest).all()
    assert 0 < (small == 0).sum() < COUNT
    mixed = contents(MIXED, dtype)
    assert numpy.isfinite(mixed).all()
    assert mixed.min() < -largest / 3 < largest / 3 < mixed.max()


@pytest.mark.parametrize("kind", KINDS)
def test_contents_differ_from_call_to_call_and_from_place_to_place(kind: str) -> None:
    """The same guard of the same tensor is the same bytes again; everything else is other bytes."""
    memory, guard = Buffer(64), draw_guard(kind)
    known = memory.guard_contents(guard, 4096)
    assert known == memory.guard_contents(guard, 4096) != memory.guard_contents(draw_guard(kind), 4096)
    words = numpy.frombuffer(known, numpy.uint32)
    assert len(set(words[:256].tolist())) > 100


def test_a_write_is_told_with_its_bytes_and_the_nearest_element() -> None:
    """Behind the tensor, or in front of it; values are given back rotated."""
    memory = Buffer(64)
    memory.fill(bytes(range(64)))
    memory.rotate(4)
    assert bytes([*range(4, 64), *range(4)]) == memory.read_tensor()
    assert memory.has_changed
    memory.fill(memory.filled_bytes)
    for place, size, said in (
        (64 + 8, 4, "4 bytes after its end, the first at element +2"),
        (-5, 1, "1 byte before its beginning, the nearest at element -2"),
    ):
        memory.write_guard(Guard(LARGEST, 7))
        assert ("", False) == (memory.stray_write_text, memory.has_changed)
        memory.write(place, bytes(byte ^ 1 for byte in memory.read(place, size)))
        assert said == memory.stray_write_text
