"""Tensors as the C interface sees them: what lies where."""

import itertools
import random
from collections.abc import Iterator

import numpy
import pytest
from numpy.lib.stride_tricks import as_strided

from loop.calls.call import POISON, elements_spanned, gather, scatter, strides_of

LAYOUTS = ("contiguous", "strided", "misaligned", "transposed")
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
        assert elements_spanned(shape, strides) == max(places, default=-1) + 1, shape
        assert all(stride > 0 for stride in strides), shape


@pytest.mark.parametrize("item", [2, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scattered_elements_are_where_numpy_looks_for_them(layout: str, item: int) -> None:
    """What numpy sees through the strides is the tensor; all else is poison."""
    for shape in shapes(item):
        values, strides = numbers(shape, item), strides_of(shape, layout)
        poison = bytes([POISON]) * (elements_spanned(shape, strides) * item)
        spread = scatter(values.tobytes(), shape, strides, item, poison)
        assert elements_spanned(shape, strides) * item == len(spread), shape
        memory = numpy.frombuffer(bytearray(spread) or bytearray(item), NUMPY[item])
        view = as_strided(memory, shape, [stride * item for stride in strides])
        assert numpy.array_equal(values, view), shape
        assert values.tobytes() == gather(spread, shape, strides, item), shape
        if 0 not in shape:
            view[...] = ~numpy.zeros_like(view)
            assert set(memory.tobytes()) <= {POISON}, shape
