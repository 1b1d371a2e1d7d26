"""Memory of the host for one tensor: what shows when somebody writes beside it."""

import ctypes

import numpy
import pytest

from loop.calls.host_memory import Buffer
from loop.calls.tensors import PAGE

STEP = 256
"""Bytes: other windows begin at multiples of this."""


def write_at(address: int, data: bytes) -> None:
    """What a stray pointer does."""
    ctypes.memmove(address, data, len(data))


@pytest.mark.parametrize("size", [0, 1, 4, 63, 64, 65, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 100])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_buffer_is_aligned_unless_it_is_to_be_misaligned(size: int, shift: int) -> None:
    """To 64 bytes, and close to the zone behind it; nothing but poison around it."""
    buffer = Buffer(size, shift)
    assert shift == buffer.address % 64
    assert not buffer.stray
    assert size == len(buffer.read())


@pytest.mark.parametrize("place", [-1, -64, -PAGE, 0, 60, PAGE - 64])
def test_a_byte_outside_a_buffer_is_seen(place: int) -> None:
    """In front of it or behind it, next to it or almost a page away."""
    buffer = Buffer(100)
    buffer.fill(bytes(100))
    address = buffer.address + (place if place < 0 else 100 + place)
    write_at(address, bytes([ctypes.string_at(address, 1)[0] ^ 0xFF]))
    assert buffer.stray
    assert not buffer.changed, "the tensor itself is as it was"


@pytest.mark.parametrize("place", [0, 50, 99])
def test_a_byte_inside_a_buffer_is_a_change(place: int) -> None:
    """Until it is filled again, or turned back."""
    buffer = Buffer(100)
    buffer.fill(bytes(range(100)))
    assert not buffer.changed
    write_at(buffer.address + place, b"\xaa")
    assert (True, True) == (buffer.changed, not buffer.stray)
    buffer.rotate(0)
    assert not buffer.changed


def test_a_rotation_goes_round_the_end_and_stays_inside() -> None:
    """Every value is elsewhere, none is lost, the zones around are whole; that is no change, another byte is."""
    for size in (STEP, 4 * STEP, 5 * STEP + 12):
        buffer = Buffer(size)
        data = numpy.random.RandomState(size).bytes(size)
        buffer.fill(data)
        for count in range(0, size, STEP):
            buffer.rotate(count)
            assert data[count:] + data[:count] == buffer.read()
            assert not buffer.stray
            assert not buffer.changed
        buffer.rotate(0)
        assert not buffer.changed


def test_what_is_filled_anew_is_rotated_anew() -> None:
    """Not what was there before."""
    buffer = Buffer(2 * STEP)
    for fill in (b"a", b"b"):
        buffer.fill(fill * STEP + bytes(STEP))
        buffer.rotate(STEP)
        assert bytes(STEP) + fill * STEP == buffer.read()


def test_poison_reads_as_nan_in_every_type() -> None:
    """An element that nobody writes shows, whatever the type."""
    buffer = Buffer(64)
    buffer.fill(bytes(64))
    buffer.poison()
    for kind in (numpy.float64, numpy.float32, numpy.float16):
        assert numpy.isnan(numpy.frombuffer(buffer.read(), kind)).all()
    upper_half = numpy.frombuffer(buffer.read(), numpy.uint16).astype(numpy.uint32) << 16
    assert numpy.isnan(upper_half.view(numpy.float32)).all(), "bfloat16 is the upper half of float32"
    assert not buffer.stray


def test_a_buffer_of_nothing_holds_nothing() -> None:
    """It can be filled, poisoned and turned like any other."""
    buffer = Buffer(0)
    buffer.fill(b"")
    buffer.rotate(0)
    buffer.poison()
    assert (b"", False, True) == (buffer.read(), buffer.changed, not buffer.stray)
