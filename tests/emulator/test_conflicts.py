"""Bank conflicts of ldmatrix: eight rows of 16 bytes are one wavefront where they lie in different banks."""

import json
from pathlib import Path

import numpy
import pytest

from tests.emulator.fixtures import Fixtures, aligned

LANES = numpy.arange(32)
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
    told = tmp_path / "launches"
    monkeypatch.setenv("LOOP_EMULATOR_LAUNCHES", str(told))
    rows, found = aligned(numpy.zeros((32, 8), numpy.uint16)), numpy.zeros((32, 4), numpy.uint32)
    assert "" == emulated.fault("ldmatrix", rows, addresses.astype(numpy.uint32), found, 0)
    launch = json.loads(told.read_text())
    assert (1, expected) == (launch["ldmatrix"], launch["conflicts"])
