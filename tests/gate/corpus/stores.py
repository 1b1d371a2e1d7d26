"""Triton kernels of the corpus; imported where there is a GPU."""

import triton
import triton.language as tl


@triton.jit
def poke(tensor, element):
    """Write to an element wherever it is."""
    tl.store(tensor + element, 1.5)


@triton.jit
def rows(source, target, scale, stride, columns, block: tl.constexpr, reads: tl.constexpr, writes: tl.constexpr):
    """Scale a row; `reads` and `writes`: elements by which a mask is too wide."""
    row, place = tl.program_id(0), tl.arange(0, block)
    values = tl.load(source + row * stride + place, mask=place < columns + reads, other=0.0)
    values = values + 0 * tl.sum(values, 0)
    tl.store(target + row * columns + place, values * tl.load(scale + row), mask=place < columns + writes)
