"""What stands around a tensor while a variant is checked: bytes that no arithmetic brings back.

They differ from tensor to tensor, from element to element and from call to call. So an access outside leaves a
trace: a write changes a byte, and a read changes the output. No torch, no numpy: it starts in milliseconds.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from loop.calls.tensors import DTYPES, PAGE

VALUES, NAN, HIGH, LOW, SMALL, MIXED = "values", "nan", "high", "low", "small", "mixed"
KINDS = (VALUES, NAN, HIGH, LOW, SMALL)
"""Numbers like the tensor's own; NaN; the largest positive and negative numbers; zeros and denormals. A masked
read hides some of them: a maximum passes over NaN, a range check over large numbers. MIXED, for an output before
it is written, holds numbers like the tensor's own and the largest ones."""
ROWS, MOST_BYTES = 4, 256 << 10
"""A zone holds so many rows of the tensor, for accesses that are off by a row; and at most so many bytes."""
PERIOD = 509
"""Elements of a zone after which the same come again. A prime: no row of a tensor is as long."""
SAMPLE = 64
"""Elements of a tensor by which numbers like its own are made."""
FIELDS = {"float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7), "float64": (11, 52)}
FIELDS |= {"float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and mantissa. Of other types every bit pattern is a number: guards hold any of them."""
_draw = random.Random()  # Seeded by the system: no variant knows what stands around its tensors.


class Guard(NamedTuple):
    """Contents of the zones around a tensor: the same guard writes the same bytes."""

    kind: str
    seed: int


def draw(kind: str) -> Guard:
    """Contents of a kind that were not there before."""
    return Guard(kind, _draw.getrandbits(48))


def zone_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> int:
    """Bytes of the zone on either side of a tensor: whole pages, and at least one."""
    row = (strides[-2] or shape[-1]) * DTYPES[dtype][1] if len(shape) > 1 else 0
    return -(-max(min(ROWS * row, MOST_BYTES), PAGE) // PAGE) * PAGE


class Surroundings:
    """The zones before and after one tensor: what was written there last, and what is there now."""

    def __init__(self, before: int, after: int, dtype: str = "float32") -> None:
        self.dtype, self.item = dtype, DTYPES[dtype][1]
        self._sizes = before, after
        self._source = random.Random(_draw.getrandbits(64))
        self._forms: dict[str, tuple[int, int]] = {}
        self.know(b"")
        self.before, self.after = self.renew(draw(VALUES))

    def know(self, data: bytes) -> None:
        """Take signs and exponents from some elements of the tensor, for numbers like its own."""
        if self.dtype not in FIELDS:
            return
        (exponent, mantissa), item = FIELDS[self.dtype], self.item
        infinite = (1 << exponent) - 1
        places = range(0, len(data), max(len(data) // item // SAMPLE, 1) * item)
        found = [int.from_bytes(data[at : at + item], "little") >> mantissa for at in places]
        self._values = [top for top in found if 0 < top & infinite < infinite] or [infinite >> 1]
        self._forms = {kind: form for kind, form in self._forms.items() if kind not in (VALUES, MIXED)}

    def renew(self, guard: Guard) -> tuple[bytes, bytes]:
        """The bytes that belong before and after the tensor from now on."""
        before, after = self._sizes
        whole = -(-before // self.item) * self.item
        data = self.fill(guard, whole + after)
        self.before, self.after = data[whole - before : whole], data[whole:]
        return self.before, self.after

    def fill(self, guard: Guard, size: int) -> bytes:
        """So many bytes of a guard's contents."""
        source = random.Random(guard.seed)
        mask, fixed = self._form(guard.kind)
        bits = source.getrandbits(PERIOD * 8 * self.item) & mask | fixed
        data, start = bits.to_bytes(PERIOD * self.item, "little"), source.randrange(PERIOD) * self.item
        return (data * (size // len(data) + 2))[start : start + size]

    def _form(self, kind: str) -> tuple[int, int]:
        """Bits that are drawn anew in each call, and bits that are as they are: sign and exponent, of a NaN more.

        A NaN stays a signaling one: any arithmetic on it makes it quiet, and leaves a trace where it is stored.
        """
        if self.dtype not in FIELDS:
            return (1 << PERIOD * 8 * self.item) - 1, 0
        if kind not in self._forms:
            exponent, mantissa = FIELDS[self.dtype]
            sign, fraction = 1 << exponent, (1 << mantissa - (kind == NAN)) - 1
            tops = {SMALL: [0], NAN: [sign - 1, 2 * sign - 1], HIGH: [sign - 2], LOW: [2 * sign - 2]}
            tops |= {VALUES: self._values, MIXED: [*self._values, *(tops[HIGH] + tops[LOW]) * len(self._values)]}
            fixed = self._any([top << mantissa | (kind == NAN) for top in tops[kind]])
            self._forms[kind] = self._any([0, fraction] if kind == SMALL else [fraction]), fixed
        return self._forms[kind]

    def _any(self, elements: Sequence[int]) -> int:
        """Bits of all elements as one number, each drawn from these."""
        drawn = self._source.choices([one.to_bytes(self.item, "little") for one in elements], k=PERIOD)
        return int.from_bytes(b"".join(drawn), "little")

    def stray(self, before: bytes, after: bytes) -> str:
        """Where bytes of the zones are not what was written there, in words; empty when all are."""
        if after != self.after:
            places = differing(after, self.after)
            return f"{said_bytes(places)} after its end, the first at element +{places[0] // self.item}"
        if before != self.before:
            places = differing(before, self.before)
            nearest = (places[-1] - len(before)) // self.item
            return f"{said_bytes(places)} before its beginning, the nearest at element {nearest}"
        return ""


def differing(one: bytes, other: bytes) -> list[int]:
    """Positions at which two sequences of one length differ."""
    return [place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def said_bytes(places: list[int]) -> str:
    """How many there are, in words."""
    return f"{len(places)} byte{'s' if len(places) > 1 else ''}"
