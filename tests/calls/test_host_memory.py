"""Memory of the host for one tensor: what shows when somebody writes beside it."""

import ctypes

import numpy
import pytest

from loop.calls.memory import Buffer
from loop.calls.tensors import PAGE

STEP = 256
"""Bytes: other windows begin at multiples of this."""


def write_at(address: int, data: bytes) -> None:
    """What a stray pointer does."""
    ctypes.memmove(address, data, len(data))


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
            assert data[count:] + data[:count] == buffer.contents()
            assert not buffer.stray
            assert not buffer.changed
        buffer.rotate(0)
        assert not buffer.changed


def test_poison_reads_as_nan_in_every_type() -> None:
    """An element that nobody writes shows, whatever the type."""
    buffer = Buffer(64)
    buffer.fill(bytes(64))
    buffer.poison()
    for kind in (numpy.float64, numpy.float32, numpy.float16):
        assert numpy.isnan(numpy.frombuffer(buffer.contents(), kind)).all()
    upper_half = numpy.frombuffer(buffer.contents(), numpy.uint16).astype(numpy.uint32) << 16
    assert numpy.isnan(upper_half.view(numpy.float32)).all(), "bfloat16 is the upper half of float32"
    assert not buffer.stray
