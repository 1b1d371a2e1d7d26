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
from collections.abc import Callable
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, NamedTuple

from loop.calls.call import PAGE, POISON, Sizes
from loop.model.dtypes import ITEM_SIZES

KINDS = OWN_VALUES, NAN, LARGEST, LOWEST, NEAR_ZERO = "values", "nan", "high", "low", "small"
MIXED = "mixed"
"""Guard contents: like the tensor's own values; NaN; largest positive; largest negative; zeros and
denormals. A single kind can hide a read: a maximum ignores NaN, a range check ignores large
numbers. MIXED, for outputs before a call, combines own and largest values."""
ROWS, MOST_BYTES = 4, 256 << 10
"""Rows of a tensor in a zone, for accesses that are off by a row; at most MOST_BYTES."""
PERIOD = 509  # Elements after which a zone's contents repeat: a prime, which no row length is.
SAMPLE = 64  # Number of elements of a tensor that are sampled for similar guard values.
FLOAT_BITS = {"float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7), "float64": (11, 52)}
FLOAT_BITS |= {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and mantissa. Other types use random bits, because every pattern is a number."""
_draw = random.Random()  # Seeded by the system, so no variant can predict guard bytes.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
Allocate = Callable[[int, int, str, int], "Memory"]
"""Allocates memory for a tensor. Arguments: bytes, misalignment in bytes, type, bytes of a zone."""


class Guard(NamedTuple):
    """Contents of the zones around a tensor; equal guards give equal bytes."""

    kind: str  # One of KINDS, or MIXED.
    seed: int


def draw_guard(kind: str) -> Guard:
    """Draw new random contents for guard zones, of a kind such as NAN."""
    return Guard(kind, _draw.getrandbits(48))


def guard_zone_bytes(shape: Sizes, strides: Sizes, dtype: str) -> int:
    """Bytes of the zone on each side of a tensor: ROWS of its rows, in one or more whole pages."""
    row_elements = (strides[-2] or shape[-1]) if len(shape) > 1 else 0
    rows_bytes = ROWS * row_elements * ITEM_SIZES[dtype]
    return -(-max(min(rows_bytes, MOST_BYTES), PAGE) // PAGE) * PAGE


@lru_cache(maxsize=512)
def _random_and_fixed_bits(dtype: str, kind: str, tensor_tops: tuple[int, ...]) -> tuple[int, int]:
    """PERIOD guard elements in a row as two large integers: a mask of the bits to draw, and the
    other bits. Of a floating-point number the mantissa is drawn; sign and exponent (its "top")
    follow from `kind` (`tensor_tops`: the tensor's). NaN is signaling: arithmetic quiets it."""
    itemsize = ITEM_SIZES[dtype]
    if dtype not in FLOAT_BITS:
        return (1 << PERIOD * 8 * itemsize) - 1, 0
    exponent_bits, mantissa_bits = FLOAT_BITS[dtype]
    is_signaling, sign = int(kind == NAN), 1 << exponent_bits
    largest_positive, largest_negative = sign - 2, 2 * sign - 2
    tops_by_kind: dict[str, tuple[int, ...]] = {
        OWN_VALUES: tensor_tops,
        NAN: (sign - 1, 2 * sign - 1),
        LARGEST: (largest_positive,),
        LOWEST: (largest_negative,),
        NEAR_ZERO: (0,),
        MIXED: (*tensor_tops, *(largest_positive, largest_negative) * len(tensor_tops)),
    }
    mantissa = (1 << mantissa_bits - is_signaling) - 1
    masks = cycle([0, mantissa] if kind == NEAR_ZERO else [mantissa])
    random_bytes, fixed_bytes = bytearray(), bytearray()
    for mask, top in islice(zip(masks, cycle(tops_by_kind[kind]), strict=True), PERIOD):
        random_bytes += mask.to_bytes(itemsize, "little")
        fixed_bytes += (top << mantissa_bits | is_signaling).to_bytes(itemsize, "little")
    return int.from_bytes(random_bytes, "little"), int.from_bytes(fixed_bytes, "little")


def differing_positions(data: bytes, expected: bytes) -> list[int]:
    """Positions at which two equally long byte strings differ; empty if they are equal."""
    if data == expected:
        return []
    return [n for n, (byte, other) in enumerate(zip(data, expected, strict=True)) if byte != other]


class Memory(ABC):
    """Memory of one tensor between two guard zones. Subclasses implement `read` and `write`."""

    name = ""  # For messages, such as `its input x`.
    address: int
    address_range = (0, 0)  # Host addresses around the tensor, without any other tensor.

    def __init__(self, nbytes: int, dtype: str, before_bytes: int, after_bytes: int) -> None:
        """`nbytes`: bytes of the tensor. The others: bytes of the two zones."""
        self.nbytes, self.dtype, self.itemsize = nbytes, dtype, ITEM_SIZES[dtype]
        self.filled_bytes = b""  # Bytes that `fill` wrote to the tensor last.
        self.zones = bytes(before_bytes), bytes(after_bytes)
        """Bytes written to the zones before and after the tensor."""
        self._tops: tuple[int, ...] = ()  # Sign and exponent of sampled elements, as a number.
        self.learn_exponents(b"")

    @abstractmethod
    def write(self, offset: int, data: bytes) -> None:
        """Write `data` from byte `offset` of the tensor on; negative: in the zone before."""

    @abstractmethod
    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes from byte `offset` of the tensor on."""

    def learn_exponents(self, data: bytes) -> None:
        """Sample signs and exponents of a tensor's bytes, for guards with values like its own (like
        1.0 if none is finite). Guards of types that are not floating point are random instead."""
        if self.dtype not in FLOAT_BITS:
            return
        exponent_bits, mantissa_bits = FLOAT_BITS[self.dtype]
        exponent_mask = (1 << exponent_bits) - 1  # Also the exponent of infinity and NaN.
        step = max(len(data) // self.itemsize // SAMPLE, 1) * self.itemsize
        samples = (data[begin : begin + self.itemsize] for begin in range(0, len(data), step))
        tops = (int.from_bytes(sample, "little") >> mantissa_bits for sample in samples)
        finite = tuple(bits for bits in tops if 0 < bits & exponent_mask < exponent_mask)
        self._tops = finite or (exponent_mask >> 1,)

    def guard_contents(self, guard: Guard, size: int) -> bytes:
        """The first `size` bytes of a guard's contents: PERIOD random elements, repeated."""
        source = random.Random(guard.seed)
        random_mask, fixed = _random_and_fixed_bits(self.dtype, guard.kind, self._tops)
        bits = source.getrandbits(PERIOD * 8 * self.itemsize) & random_mask | fixed
        period = bits.to_bytes(PERIOD * self.itemsize, "little")
        begin = source.randrange(PERIOD) * self.itemsize
        return (period * (size // len(period) + 2))[begin : begin + size]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The tensor's bytes in NVIDIA's array interface, which `torch.as_tensor` reads."""
        data = self.address, False  # It may be written to.
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": data, "version": 3}

    def read_tensor(self) -> bytes:
        """The tensor's bytes."""
        return self.read(0, self.nbytes)

    def fill(self, data: bytes) -> None:
        """Write `data` (exactly the tensor's size) into the tensor, and remember it."""
        self.filled_bytes = data
        self.write(0, data)

    def poison(self, guard: Guard | None = None) -> None:
        """Fill the tensor with NaN (all bytes POISON), or with a guard's contents."""
        size = self.nbytes
        self.write(0, self.guard_contents(guard, size) if guard else bytes([POISON]) * size)

    def write_guard(self, guard: Guard) -> None:
        """Write a guard's contents to both zones."""
        before_bytes, after_bytes = map(len, self.zones)
        begin = -before_bytes % self.itemsize  # The second zone begins with a whole element.
        data = self.guard_contents(guard, begin + before_bytes + after_bytes)[begin:]
        self.zones = data[:before_bytes], data[before_bytes:]
        self.write(-before_bytes, self.zones[0])
        self.write(self.nbytes, self.zones[1])

    @property
    def has_changed(self) -> bool:
        """Whether the tensor differs from what `fill` wrote last."""
        return self.read_tensor() != self.filled_bytes

    @property
    def stray_write_text(self) -> str:
        """Description of writes into the zones; empty if there were none."""
        before, after = self.zones
        if positions := differing_positions(self.read(self.nbytes, len(after)), after):
            place = f"after its end, the first at element +{positions[0] // self.itemsize}"
        elif positions := differing_positions(self.read(-len(before), len(before)), before):
            nearest = (positions[-1] - len(before)) // self.itemsize
            place = f"before its beginning, the nearest at element {nearest}"
        else:
            return ""
        return f"{len(positions)} byte{'s' if len(positions) > 1 else ''} {place}"

    def protect_zones(self, *, at_end: bool) -> bool:
        """Place the tensor at the end, or the beginning, of pages outside which every access
        faults. Returns False, without effect, if this memory cannot do it."""
        return False

    def unprotect_zones(self) -> None:
        """Make the zones accessible again. Afterwards, tensor and zones must be rewritten."""


class Buffer(Memory):
    """Host memory of one tensor between two zones that can be made inaccessible. The tensor ends as
    near to the zone behind it as a 64-byte boundary allows."""

    FAR_BYTES = 1 << 20  # Inaccessible beyond each zone: a far access reaches no other memory.
    ALIGNMENT = 64

    def __init__(
        self, nbytes: int, shift_bytes: int = 0, dtype: str = "float32", zone_bytes: int = PAGE
    ) -> None:
        """`shift_bytes`: past a 64-byte boundary. `zone_bytes`: size of each zone, whole pages."""
        self._shift_bytes, self._zone_bytes = shift_bytes, zone_bytes
        self._pages_bytes = -(-(nbytes + shift_bytes) // PAGE) * PAGE  # Pages of the tensor.
        self._first_page = self.FAR_BYTES + zone_bytes
        self._zone_starts = self.FAR_BYTES, self._first_page + self._pages_bytes
        zones_end = self._zone_starts[1] + zone_bytes
        size = zones_end + self.FAR_BYTES
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address_range = (self._base, self._base + size)
        self._set_access((0, zones_end), self.FAR_BYTES, allowed=False)
        # Largest offset in the pages that keeps the intended alignment.
        spare_bytes = self._pages_bytes - nbytes - shift_bytes
        self._end_offset = spare_bytes // self.ALIGNMENT * self.ALIGNMENT + shift_bytes
        after_bytes = self._pages_bytes - self._end_offset - nbytes + zone_bytes
        super().__init__(nbytes, dtype, zone_bytes + self._end_offset, after_bytes)
        self._place(self._end_offset)
        self.write_guard(draw_guard(OWN_VALUES))
        self.poison()

    def _place(self, offset: int) -> None:
        """Move the tensor to byte `offset` of its pages, without its contents."""
        self._start = self._first_page + offset
        self.address = self._base + self._start

    def _set_access(self, starts: tuple[int, int], size: int, *, allowed: bool) -> None:
        """Allow or forbid access to `size` bytes from each of `starts` on. Raises OSError."""
        protection = mmap.PROT_READ | mmap.PROT_WRITE if allowed else 0
        for start in starts:
            if _libc.mprotect(self._base + start, size, protection):
                raise OSError(ctypes.get_errno(), "mprotect")

    def protect_zones(self, *, at_end: bool) -> bool:
        """As in `Memory`; always possible. An aligned tensor ends up to 63 bytes before its pages
        do, which hides accesses to these bytes; a misaligned one ends exactly where they end."""
        self.unprotect_zones()
        offset_at_page_end = self._pages_bytes - self.nbytes
        stays_misaligned = self._shift_bytes and offset_at_page_end % self.ALIGNMENT
        end_offset = offset_at_page_end if stays_misaligned else self._end_offset
        self._place(end_offset if at_end else self._shift_bytes)
        filler = self.guard_contents(draw_guard(OWN_VALUES), self._pages_bytes)
        self._memory[self._first_page : self._zone_starts[1]] = filler
        self._set_access(self._zone_starts, self._zone_bytes, allowed=False)
        return True

    def unprotect_zones(self) -> None:
        """As in `Memory`; also move the tensor back to its usual place."""
        self._set_access(self._zone_starts, self._zone_bytes, allowed=True)
        self._place(self._end_offset)

    def write(self, offset: int, data: bytes) -> None:
        self._memory[self._start + offset : self._start + offset + len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        return self._memory[self._start + offset : self._start + offset + size]
