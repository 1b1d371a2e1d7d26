"""Tensors in memory of our own: what lies where, and what shows when somebody writes beside it."""

import ctypes
import itertools
import random
from collections.abc import Iterator

import numpy
import pytest
from numpy.lib.stride_tricks import as_strided

from loop.bench.child.tensors import (
    DTYPES,
    PAGE,
    POISON,
    ROW_PADDING,
    STEP_BYTES,
    Buffer,
    byte_size,
    describe,
    extent,
    scatter,
    strides_of,
)

LAYOUTS = ("contiguous", "strided", "misaligned")
NUMPY = {4: numpy.uint32, 2: numpy.uint16, 8: numpy.uint64}
"""Bytes of an element to a type that holds them whatever they mean."""


def shapes(seed: int, count: int = 60) -> Iterator[tuple[int, ...]]:
    """Shapes of every rank up to five, empty ones and single elements among them."""
    draw = random.Random(seed)
    yield from [(1,), (0,), (3, 0), (1, 1, 1, 1), (2, 1, 5, 1), (7,)]
    for _ in range(count):
        yield tuple(draw.choice((0, 1, 1, 2, 3, 5, 9)) for _ in range(draw.randint(1, 5)))


def numbers(shape: tuple[int, ...], item: int, seed: int = 1) -> numpy.ndarray:
    """Different elements; none of them is poison."""
    count = int(numpy.prod(shape))
    return (numpy.random.RandomState(seed).permutation(count) + 1).astype(NUMPY[item]).reshape(shape)


def write_at(address: int, data: bytes) -> None:
    """What a stray pointer does."""
    ctypes.memmove(address, data, len(data))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_element_has_a_place_of_its_own(layout: str) -> None:
    """No two indices meet, and the extent reaches to the last."""
    for shape in shapes(2):
        strides = strides_of(shape, layout)
        places = {
            sum(i * stride for i, stride in zip(index, strides, strict=True))
            for index in itertools.product(*map(range, shape))
        }
        assert int(numpy.prod(shape)) == len(places), shape
        assert extent(shape, strides) == max(places, default=-1) + 1, shape
        assert all(stride > 0 for stride in strides), shape


def test_contiguous_strides_are_those_of_numpy() -> None:
    """C order; where a dimension has one element or none its stride says nothing."""
    for shape in shapes(3):
        strides = strides_of(shape, "contiguous")
        assert strides == strides_of(shape, "misaligned")
        if 0 not in shape:
            expected = numpy.empty(shape, numpy.uint8).strides
            assert expected == strides, shape


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5,), (2,)),
        ((3, 4), (4 + ROW_PADDING, 1)),
        ((2, 3, 4, 8), (3 * 4 * 16, 16, 3 * 16, 1)),
        ((2, 3, 4), (3 * 12, 12, 1)),
        ((2, 3, 1, 5), (39, 13, 39, 1)),
    ],
)
def test_strided_rows_are_padded_and_heads_change_places(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """A [B, H, S, D] tensor as in [B, S, H, D] storage with wider rows; a vector is every other element."""
    assert expected == strides_of(shape, "strided")


@pytest.mark.parametrize("item", [2, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scattered_elements_are_where_numpy_looks_for_them(layout: str, item: int) -> None:
    """What numpy sees through the strides is the tensor; all else is poison."""
    for shape in shapes(item):
        values, strides = numbers(shape, item), strides_of(shape, layout)
        spread = scatter(values.tobytes(), shape, strides, item)
        assert extent(shape, strides) * item == len(spread), shape
        memory = numpy.frombuffer(bytearray(spread) or bytearray(item), NUMPY[item])
        view = as_strided(memory, shape, [stride * item for stride in strides])
        assert numpy.array_equal(values, view), shape
        if 0 not in shape:
            view[...] = ~numpy.zeros_like(view)
            assert set(memory.tobytes()) <= {POISON}, shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_count_bytes(dtype: str) -> None:
    """Also of tensors without elements."""
    assert 6 * DTYPES[dtype][1] == byte_size((2, 3), dtype)
    assert 0 == byte_size((2, 0), dtype)


def test_a_tensor_is_described_as_the_c_interface_has_it() -> None:
    """Address, number of the type, rank, sizes and strides in elements."""
    tensor = describe(4096, (2, 3), (11, 1), "float16")
    assert (4096, 2, 2) == (tensor.data, tensor.dtype, tensor.rank)
    assert ([2, 3, 0], [11, 1, 0]) == (tensor.sizes[:3], tensor.strides[:3])


@pytest.mark.parametrize("size", [0, 1, 4, 63, 64, 65, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 100])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_buffer_is_aligned_unless_it_is_to_be_misaligned(size: int, shift: int) -> None:
    """To 64 bytes, and close to the zone behind it; nothing but poison around it."""
    buffer = Buffer(size, shift)
    assert shift == buffer.address % 64
    assert buffer.intact
    assert size == len(buffer.read())


@pytest.mark.parametrize("place", [-1, -64, -PAGE, 0, 60, PAGE - 64])
def test_a_byte_outside_a_buffer_is_seen(place: int) -> None:
    """In front of it or behind it, next to it or almost a page away."""
    buffer = Buffer(100)
    buffer.fill(bytes(100))
    write_at(buffer.address + (place if place < 0 else 100 + place), b"\x00")
    assert not buffer.intact
    assert not buffer.changed, "the tensor itself is as it was"


@pytest.mark.parametrize("place", [0, 50, 99])
def test_a_byte_inside_a_buffer_is_a_change(place: int) -> None:
    """Until it is filled again, or turned back."""
    buffer = Buffer(100)
    buffer.fill(bytes(range(100)))
    assert not buffer.changed
    write_at(buffer.address + place, b"\xaa")
    assert (True, True) == (buffer.changed, buffer.intact)
    buffer.rotate(0)
    assert not buffer.changed


def test_a_rotation_goes_round_the_end_and_stays_inside() -> None:
    """Every value is elsewhere, none is lost, the zones around are whole; that is no change, another byte is."""
    for size in (STEP_BYTES, 4 * STEP_BYTES, 5 * STEP_BYTES + 12):
        buffer = Buffer(size)
        data = numpy.random.RandomState(size).bytes(size)
        buffer.fill(data)
        for count in range(0, size, STEP_BYTES):
            buffer.rotate(count)
            assert data[count:] + data[:count] == buffer.read()
            assert buffer.intact
            assert not buffer.changed
        buffer.rotate(0)
        assert not buffer.changed


def test_what_is_filled_anew_is_rotated_anew() -> None:
    """Not what was there before."""
    buffer = Buffer(2 * STEP_BYTES)
    for fill in (b"a", b"b"):
        buffer.fill(fill * STEP_BYTES + bytes(STEP_BYTES))
        buffer.rotate(STEP_BYTES)
        assert bytes(STEP_BYTES) + fill * STEP_BYTES == buffer.read()


def test_poison_reads_as_nan_in_every_type() -> None:
    """An element that nobody writes shows, whatever the type."""
    buffer = Buffer(64)
    buffer.fill(bytes(64))
    buffer.poison()
    for kind in (numpy.float64, numpy.float32, numpy.float16):
        assert numpy.isnan(numpy.frombuffer(buffer.read(), kind)).all()
    upper_half = numpy.frombuffer(buffer.read(), numpy.uint16).astype(numpy.uint32) << 16
    assert numpy.isnan(upper_half.view(numpy.float32)).all(), "bfloat16 is the upper half of float32"
    assert buffer.intact


def test_a_buffer_of_nothing_holds_nothing() -> None:
    """It can be filled, poisoned and turned like any other."""
    buffer = Buffer(0)
    buffer.fill(b"")
    buffer.rotate(0)
    buffer.poison()
    assert (b"", False, True) == (buffer.read(), buffer.changed, buffer.intact)
