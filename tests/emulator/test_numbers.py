"""Element types: all patterns of 16 bits, and the rounding of many floats, against PyTorch."""

from pathlib import Path

import numpy
import pytest
import torch

from tests.emulator.fixtures import KERNELS, Array, Fixtures, compiled

PATTERNS = numpy.arange(1 << 16, dtype=numpy.uint32).astype(numpy.uint16)
EDGES = (65504, 65519.996, 65520, 65536, 3e38, 3.4e38, 2**-24, 2**-25, 2**-26, 1e-45)
TYPES = {"half": torch.float16, "bfloat": torch.bfloat16}


@pytest.fixture(scope="module", params=["-march=native", "-march=x86-64"])
def numbers(request: pytest.FixtureRequest, build_cache: Path) -> Fixtures:
    """Conversions as this processor does them best, and as any x86-64 does them."""
    return Fixtures(compiled(KERNELS / "numbers.cu", build_cache, request.param))


def widened(numbers: Fixtures, name: str, bits: Array) -> Array:
    """To float32."""
    values = numpy.empty(bits.size, numpy.float32)
    numbers.fill(f"{name}_to_float", bits, values, bits.size)
    return values


def rounded(numbers: Fixtures, name: str, values: Array) -> Array:
    """From float32."""
    bits = numpy.empty(values.size, numpy.uint16)
    numbers.fill(f"float_to_{name}", values, bits, values.size)
    return bits


def by_torch(name: str, values: Array) -> Array:
    """The same, by PyTorch."""
    return torch.from_numpy(values).to(TYPES[name]).view(torch.int16).numpy().view(numpy.uint16)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_every_pattern_is_the_number_it_stands_for(numbers: Fixtures, name: str) -> None:
    """Zeros with their signs, subnormals, infinities; NaN is NaN."""
    expected = torch.from_numpy(PATTERNS.view(numpy.int16)).view(TYPES[name]).float().numpy()
    floats = widened(numbers, name, PATTERNS)
    assert (numpy.isnan(expected) == numpy.isnan(floats)).all()
    is_number = ~numpy.isnan(expected)
    assert (expected[is_number].view(numpy.uint32) == floats[is_number].view(numpy.uint32)).all()


@pytest.mark.parametrize("name", TYPES)
def test_floats_are_rounded_to_nearest_with_ties_to_even(numbers: Fixtures, name: str) -> None:
    """Random patterns, and the midpoints of all neighbours with the floats around them."""
    anything = numpy.random.RandomState(0).randint(0, 1 << 32, 400_000, dtype=numpy.uint32)
    middles = midpoints(numbers, name)
    near = numpy.concatenate([middles.view(numpy.uint32) + numpy.uint32(d) for d in (0, 1, 0xFFFFFFFF)])
    edges = numpy.array(EDGES, numpy.float32)
    values = numpy.concatenate([anything, near, edges.view(numpy.uint32), (-edges).view(numpy.uint32)])
    floats = values.view(numpy.float32)
    there = ~numpy.isnan(floats)
    assert (by_torch(name, floats)[there] == rounded(numbers, name, floats)[there]).all()
    assert (rounded(numbers, name, floats)[~there] == 0x7FFF).all()


def midpoints(numbers: Fixtures, name: str) -> Array:
    """The floats halfway between neighbouring numbers of a type, of either sign."""
    values = widened(numbers, name, PATTERNS)
    finite = numpy.sort(values[numpy.isfinite(values)]).astype(numpy.float64)
    return ((finite[:-1] + finite[1:]) / 2).astype(numpy.float32)
