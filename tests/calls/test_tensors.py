"""Tensors as the C interface sees them: the place of each element."""

import itertools
import mmap
import random
from collections.abc import Iterator

import numpy
import pytest
from numpy.lib.stride_tricks import as_strided

from loop.calls import invocation
from loop.calls.call import POISON, Call, TensorFile, elements_spanned, gather, scatter, strides_of
from loop.calls.invocation import HostStage, Places
from loop.calls.library import LibraryCalls
from loop.calls.memory import KINDS, LARGEST, LOWEST, MIXED, NAN, NEAR_ZERO, Buffer, Guard, draw_guard
from loop.model.dtypes import FLOATS, ITEM_SIZES

LAYOUTS = ("contiguous", "strided", "misaligned", "transposed")
NUMPY = {4: numpy.uint32, 2: numpy.uint16, 8: numpy.uint64}
"""Size of an element in bytes to an integer type of that size."""


def shapes(seed: int, count: int = 60) -> Iterator[tuple[int, ...]]:
    """Shapes of every rank up to five, empty ones and single elements among them."""
    draw = random.Random(seed)
    yield from [(1,), (0,), (3, 0), (1, 1, 1, 1), (2, 1, 5, 1), (7,)]
    for _ in range(count):
        yield tuple(draw.choice((0, 1, 1, 2, 3, 5, 9)) for _ in range(draw.randint(1, 5)))


def numbers(shape: tuple[int, ...], item: int, seed: int = 1) -> numpy.ndarray:
    """Different elements, none of which equals the poison."""
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
    """NumPy reads the tensor through its strides; all other memory is poison."""
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
    """In every element type a guard holds NaN, the largest numbers of either sign, or tiny numbers."""
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
    filled = memory.guard_contents(guard, 4096)
    assert filled == memory.guard_contents(guard, 4096) != memory.guard_contents(draw_guard(kind), 4096)
    words = numpy.frombuffer(filled, numpy.uint32)
    assert len(set(words[:256].tolist())) > 100


def test_a_write_is_told_with_its_bytes_and_the_nearest_element() -> None:
    """Writes behind and in front of the tensor are reported."""
    memory = Buffer(64)
    memory.fill(bytes(range(64)))
    for place, size, message in (
        (64 + 8, 4, "4 bytes after its end, the first at element +2"),
        (-5, 1, "1 byte before its beginning, the nearest at element -2"),
    ):
        memory.write_guard(Guard(LARGEST, 7))
        assert ("", False) == (memory.stray_write_text, memory.has_changed)
        memory.write(place, bytes(byte ^ 1 for byte in memory.read(place, size)))
        assert message == memory.stray_write_text


def test_a_positive_control_takes_longer_by_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits after the calls of a sample, for a share of what they took. Each call takes 1000 ticks."""
    call, ticks = Call("w", "float32", (), TensorFile("y", "", (1,), "float32"), {}, ()), itertools.count()
    monkeypatch.setattr(invocation, "perf_counter_ns", lambda: next(ticks))
    for slowdown, expected in ((0.0, 10_000), (0.05, 10_500), (1.0, 20_000)):
        calls = LibraryCalls(print, Places(mmap.mmap(-1, 1 << 17), call, 10))
        stage, begin = HostStage(calls, slowdown), next(ticks)
        stage.runs = [lambda: [next(ticks) for _ in range(1000)]] * 10
        stage.run(10)
        assert expected <= next(ticks) - begin <= expected + 5
