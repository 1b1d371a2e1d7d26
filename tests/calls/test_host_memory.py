"""Memory of the host for one tensor: what shows when somebody writes beside it."""

import ctypes

import pytest

from loop.calls.call import PAGE
from loop.calls.memory import Buffer

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
