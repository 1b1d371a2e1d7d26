"""Memory for the tensors of one call, with guard zones around each tensor.

A check repeats a call on the same values with different bytes in the zones. A write out of bounds
changes a zone. A read out of bounds changes the output, because zone bytes differ by tensor,
element and call. On the host, zones can also be made inaccessible, so that each access faults.
Without torch and numpy, for a fast start.
"""

import ctypes
import mmap
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle, islice
from typing import NamedTuple

from loop.calls.call import DTYPES, PAGE, POISON

VALUES, NAN, HIGH, LOW, SMALL, MIXED = "values", "nan", "high", "low", "small", "mixed"
KINDS = (VALUES, NAN, HIGH, LOW, SMALL)
"""Guard contents: like the tensor's own values; NaN; largest positive; largest negative; zeros and
denormals. A single kind can hide a read: a maximum ignores NaN, a range check ignores large
numbers. MIXED, for outputs before a call, combines own and largest values."""
ROWS, MOST_BYTES = 4, 256 << 10
"""Rows of a tensor in a zone, for accesses that are off by a row; at most MOST_BYTES."""
PERIOD = 509
"""Elements after which a zone's contents repeat: a prime, so that no row has that length."""
SAMPLE = 64
"""Elements of a tensor that are sampled for similar guard values."""
FIELDS = {"float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7), "float64": (11, 52)}
FIELDS |= {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and mantissa. Other types use random bits, because every pattern is a number."""
_draw = random.Random()  # Seeded by the system, so no variant can predict guard bytes.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guard(NamedTuple):
    """Contents of the zones around a tensor; equal guards give equal bytes."""

    kind: str
    seed: int


def draw_guard(kind: str) -> Guard:
    """Draw new random contents of a kind."""
    return Guard(kind, _draw.getrandbits(48))


def guard_zone_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> int:
    """Bytes of the zone on either side of a tensor: whole pages, at least one."""
    row = (strides[-2] or shape[-1]) * DTYPES[dtype][1] if len(shape) > 1 else 0
    return -(-max(min(ROWS * row, MOST_BYTES), PAGE) // PAGE) * PAGE


@lru_cache(maxsize=512)
def _bits(dtype: str, kind: str, tops: tuple[int, ...]) -> tuple[int, int]:
    """Bit masks for PERIOD elements: the random bits, and the value of the fixed bits. Sign and
    exponent are fixed: `tops` has those of values like the tensor's own. NaN is signaling:
    arithmetic makes it quiet, which shows where it is stored."""
    item = DTYPES[dtype][1]
    if dtype not in FIELDS:
        return (1 << PERIOD * 8 * item) - 1, 0

    def repeated(patterns: Sequence[int]) -> int:
        elements = islice(cycle(patterns), PERIOD)
        return int.from_bytes(b"".join(bits.to_bytes(item, "little") for bits in elements), "little")

    exponent, mantissa = FIELDS[dtype]
    signaling, sign = int(kind == NAN), 1 << exponent
    fraction = (1 << mantissa - signaling) - 1
    largest = (sign - 2, 2 * sign - 2)
    kinds = {VALUES: tops, SMALL: (0,), NAN: (sign - 1, 2 * sign - 1), HIGH: largest[:1], LOW: largest[1:]}
    kinds[MIXED] = (*tops, *largest * len(tops))
    drawn = repeated([0, fraction] if kind == SMALL else [fraction])
    return drawn, repeated([top << mantissa | signaling for top in kinds[kind]])


def differing_positions(data: bytes, expected: bytes) -> list[int]:
    """Positions at which two equally long byte strings differ."""
    if data == expected:
        return []
    return [place for place, (a, b) in enumerate(zip(data, expected, strict=True)) if a != b]


def count_bytes(places: Sequence[int]) -> str:
    """The number of places in words, such as `3 bytes`."""
    return f"{len(places)} byte{'s' if len(places) > 1 else ''}"


class Memory(ABC):
    """Memory of one tensor between two guard zones. Subclasses implement `read` and `write`."""

    address: int
    address_range = (0, 0)
    """Range of host addresses around the tensor that contains no other tensor."""

    def __init__(self, nbytes: int, dtype: str, before: int, after: int) -> None:
        """`before`, `after`: bytes of the two zones."""
        self.nbytes, self.dtype, self.itemsize, self.known_bytes = nbytes, dtype, DTYPES[dtype][1], b""
        self.rotation_bytes = 0
        """Bytes by which the contents are rotated relative to `data`."""
        self.zones = bytes(before), bytes(after)
        """Bytes written to the zones before and after the tensor."""
        self._tops: tuple[int, ...] = ()
        self.learn_exponents(b"")

    @abstractmethod
    def write(self, offset: int, known_bytes: bytes) -> None:
        """Write `data` from byte `offset` of the tensor on; negative: in the zone before."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes from byte `offset` on."""

    def learn_exponents(self, data: bytes) -> None:
        """Learn signs and exponents from sampled elements, for similar guard values."""
        if self.dtype in FIELDS:
            (exponent, mantissa), itemsize = FIELDS[self.dtype], self.itemsize
            infinite = (1 << exponent) - 1
            places = range(0, len(data), max(len(data) // itemsize // SAMPLE, 1) * itemsize)
            tops = [int.from_bytes(data[at : at + itemsize], "little") >> mantissa for at in places]
            finite = tuple(top for top in tops if 0 < top & infinite < infinite)
            self._tops = finite or (infinite >> 1,)

    def guard_bytes(self, guard: Guard, size: int) -> bytes:
        """The first `size` bytes of a guard's contents."""
        source = random.Random(guard.seed)
        drawn, fixed = _bits(self.dtype, guard.kind, self._tops)
        bits = source.getrandbits(PERIOD * 8 * self.itemsize) & drawn | fixed
        data, start = bits.to_bytes(PERIOD * self.itemsize, "little"), source.randrange(PERIOD) * self.itemsize
        return (data * (size // len(data) + 2))[start : start + size]

    def read_tensor(self) -> bytes:
        """The tensor's bytes."""
        return self.read(0, self.nbytes)

    def fill(self, data: bytes) -> None:
        """Write `data` (exactly the tensor's size) into the tensor, and remember it."""
        self.known_bytes, self.rotation_bytes = data, 0
        self.write(0, data)

    def rotate(self, count: int) -> None:
        """Rotate the contents by `count` bytes, so that every address gets another value."""
        self.rotation_bytes = count
        self.write(0, self.known_bytes[count:] + self.known_bytes[:count])

    def poison(self, guard: Guard | None = None) -> None:
        """Fill the tensor with NaN, or with a guard's contents."""
        self.write(0, self.guard_bytes(guard, self.nbytes) if guard else bytes([POISON]) * self.nbytes)

    def write_guard(self, guard: Guard) -> None:
        """Write a guard's contents to both zones."""
        before, after = map(len, self.zones)
        whole = -(-before // self.itemsize) * self.itemsize
        data = self.guard_bytes(guard, whole + after)
        self.zones = data[whole - before : whole], data[whole:]
        self.write(-before, self.zones[0])
        self.write(self.nbytes, self.zones[1])

    @property
    def has_changed(self) -> bool:
        """Whether the tensor differs from what was last written by `fill` or `rotate`."""
        split = self.rotation_bytes
        return self.read_tensor() != self.known_bytes[split:] + self.known_bytes[:split]

    @property
    def stray_write(self) -> str:
        """Describes writes into the zones; empty if there were none."""
        before, after = self.zones
        if places := differing_positions(self.read(self.nbytes, len(after)), after):
            return f"{count_bytes(places)} after its end, the first at element +{places[0] // self.itemsize}"
        if places := differing_positions(self.read(-len(before), len(before)), before):
            nearest = (places[-1] - len(before)) // self.itemsize
            return f"{count_bytes(places)} before its beginning, the nearest at element {nearest}"
        return ""

    def protect_zones(self, *, at_end: bool) -> bool:
        """Place the tensor at the end, or the beginning, of pages outside which every access
        faults. Returns False, without effect, if this memory cannot do it."""
        return False

    def unprotect_zones(self) -> None:
        """Make the zones accessible again. Afterwards, tensor and zones must be rewritten."""


class Buffer(Memory):
    """Host memory of one tensor between two zones that can be made inaccessible. The tensor ends as
    near to the zone behind it as a 64-byte boundary allows. `shift`: bytes of misalignment."""

    FAR = 1 << 20
    """Inaccessible bytes beyond each zone, so that a far access reaches no other memory."""
    ALIGNMENT = 64

    def __init__(self, size: int, shift: int = 0, dtype: str = "float32", zone: int = PAGE) -> None:
        self._shift, self._zone = shift, zone
        self._room = -(-(size + shift) // PAGE) * PAGE
        length = self._room + 2 * zone + 2 * self.FAR
        self._memory = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address_range = (self._base, self._base + length)
        self._allow(0, self.FAR, allowed=False)
        self._allow(length - self.FAR, self.FAR, allowed=False)
        # Largest offset that keeps the intended alignment.
        self._end = (self._room - size - shift) // self.ALIGNMENT * self.ALIGNMENT + shift
        super().__init__(size, dtype, zone + self._end, self._room - self._end - size + zone)
        self._place(self._end)
        self.write_guard(draw_guard(VALUES))
        self.poison()

    def _place(self, offset: int) -> None:
        """Move the tensor to this offset in its pages."""
        self._start = self.FAR + self._zone + offset
        self.address = self._base + self._start

    def _allow(self, start: int, size: int, *, allowed: bool) -> None:
        """Make whole pages accessible or inaccessible. Raises OSError if the system refuses."""
        if _libc.mprotect(self._base + start, size, mmap.PROT_READ | mmap.PROT_WRITE if allowed else 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def protect_zones(self, *, at_end: bool) -> bool:
        """Make the zones inaccessible, with the tensor at one end of its pages. The 64-byte
        alignment hides accesses up to 63 bytes after the tensor."""
        self.unprotect_zones()
        flush = self._room - self.nbytes
        end = flush if self._shift and flush % self.ALIGNMENT else self._end
        self._place(end if at_end else self._shift)
        room = self.FAR + self._zone
        self._memory[room : room + self._room] = self.guard_bytes(draw_guard(VALUES), self._room)
        for zone in (self.FAR, room + self._room):
            self._allow(zone, self._zone, allowed=False)
        return True

    def unprotect_zones(self) -> None:
        for zone in (self.FAR, self.FAR + self._zone + self._room):
            self._allow(zone, self._zone, allowed=True)
        self._place(self._end)

    def write(self, offset: int, data: bytes) -> None:
        self._memory[self._start + offset : self._start + offset + len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        return self._memory[self._start + offset : self._start + offset + size]
