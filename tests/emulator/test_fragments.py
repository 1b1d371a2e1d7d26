"""ldmatrix and mma against a model of their own, written from the tables of the PTX ISA (9.7.14.5); banks."""

import json
from pathlib import Path

import numpy
import pytest
import torch

from tests.emulator.fixtures import Array, Fixtures, aligned

LANES = numpy.arange(32)
GROUP, IN_GROUP = LANES // 4, LANES % 4  # `groupID` and `threadID_in_group` of the manual.


def element(values: Array, bfloat: bool) -> Array:
    """The 16 bits of each number in the type that is multiplied."""
    dtype = torch.bfloat16 if bfloat else torch.float16
    return torch.from_numpy(values).to(dtype).view(torch.int16).numpy().view(numpy.uint16)


def packed(low: Array, high: Array) -> Array:
    """Two elements in a register, the one with the lower index in the lower half."""
    return low.astype(numpy.uint32) | high.astype(numpy.uint32) << 16


def a_fragment(a: Array) -> Array:
    """Registers [32, 4] of a 16x16 matrix: row = groupID (+ 8 for a2, a3, a6, a7), column = 2 threadID + (i & 1)
    (+ 8 for i >= 4)."""
    registers = []
    for pair in range(4):
        row = GROUP + (8 if pair in (1, 3) else 0)
        column = 2 * IN_GROUP + (8 if pair >= 2 else 0)
        registers.append(packed(a[row, column], a[row, column + 1]))
    return numpy.ascontiguousarray(numpy.stack(registers, axis=1))


def b_fragment(b: Array) -> Array:
    """Registers [32, 2] of a 16x8 matrix: row = 2 threadID + (i & 1) (+ 8 for i >= 2), column = groupID."""
    registers = [packed(b[row, GROUP], b[row + 1, GROUP]) for row in (2 * IN_GROUP, 2 * IN_GROUP + 8)]
    return numpy.ascontiguousarray(numpy.stack(registers, axis=1))


def c_fragment(c: Array) -> Array:
    """Registers [32, 4] of a 16x8 matrix: row = groupID (+ 8 for i >= 2), column = 2 threadID + (i & 1)."""
    places = [(GROUP + 8 * (i // 2), 2 * IN_GROUP + i % 2) for i in range(4)]
    return numpy.ascontiguousarray(numpy.stack([c[place] for place in places], axis=1))


@pytest.mark.parametrize("bfloat", [False, True], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_mma_multiplies_as_the_manual_draws_it(emulated: Fixtures, seed: int, bfloat: bool) -> None:
    """d = a b + c: whole numbers, which any order of additions adds without an error."""
    draw = numpy.random.RandomState(seed)
    a, b, c = (draw.randint(-8, 9, shape).astype(numpy.float32) for shape in ((16, 16), (16, 8), (16, 8)))
    left, right = a_fragment(element(a, bfloat)), b_fragment(element(b, bfloat))
    d = numpy.full((32, 4), numpy.nan, numpy.float32)
    assert "" == emulated.fault("mma", left, right, c_fragment(c), d, int(bfloat))
    assert (c_fragment(a @ b + c) == d).all()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_ldmatrix_hands_out_rows_as_the_manual_says(emulated: Fixtures, seed: int, transposed: bool) -> None:
    """Lane l gets of matrix q the elements 2 (l mod 4) and one more of row l / 4; with .trans, of its columns.

    Rows lie anywhere, and lane 8q + r says where row r of matrix q is.
    """
    draw = numpy.random.RandomState(seed)
    rows = draw.randint(0, 1 << 16, (32, 8)).astype(numpy.uint16)
    addresses = (16 * draw.permutation(512)[:32]).astype(numpy.uint32)
    registers = numpy.zeros((32, 4), numpy.uint32)
    assert "" == emulated.fault("ldmatrix", aligned(rows), addresses, registers, int(transposed))
    for q, matrix in enumerate(rows.reshape(4, 8, 8)):
        source = matrix.T if transposed else matrix
        assert (packed(source[GROUP, 2 * IN_GROUP], source[GROUP, 2 * IN_GROUP + 1]) == registers[:, q]).all()


LAYOUTS = {
    "side by side": (16 * LANES, 0),
    "a pitch of 128 bytes": (128 * LANES, 4 * 7),
    "a pitch of 128 bytes, swizzled": (128 * LANES + 16 * (LANES % 8), 0),
    "pairs of rows": (32 * LANES, 4 * 1),
    "one matrix of four": (numpy.where(LANES < 8, 128 * LANES, 4096 + 16 * LANES), 7),
    "one row for all": (0 * LANES, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.slow
def test_rows_that_share_banks_are_counted(
    emulated: Fixtures, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wavefronts beyond the four that an x4 needs; the same row for several lanes is read once."""
    addresses, expected = LAYOUTS[layout]
    launches = tmp_path / "launches"
    monkeypatch.setenv("LOOP_EMULATOR_LAUNCHES", str(launches))
    rows, registers = aligned(numpy.zeros((32, 8), numpy.uint16)), numpy.zeros((32, 4), numpy.uint32)
    assert "" == emulated.fault("ldmatrix", rows, addresses.astype(numpy.uint32), registers, 0)
    launch = json.loads(launches.read_text())
    assert (1, expected) == (launch["ldmatrix"], launch["conflicts"])
