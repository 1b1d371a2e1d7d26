"""Hopper's instructions under the emulator: right kernels pass, and each missing line is reported."""

import re
from pathlib import Path

import numpy
import pytest

from tests.emulator.fixtures import KERNELS, Array, Fixtures, aligned, compiled, each_seed, places

EARLY = "is still on its way|has not been waited for|nobody has written"
NO_GROUP = "wgmma_wait for its group is missing"
FAULTS: dict[str, tuple[int, str]] = {
    "no wait": (0, EARLY),
    "the wrong phase": (1, f"{EARLY}|deadlock: waits for the phase"),
    "a stage that is overwritten": (2, "copies over byte .*|once more than the 1 times that a phase takes"),
    "a stage that is released too early": (3, "copies over byte .* which products of warp .* read"),
    "no fence of the async proxy": (4, "which thread .* wrote at .*: no fence.proxy.async of that thread"),
    "no barrier after writing": (5, "race: operand a reads byte|no fence.proxy.async"),
    "a wrong stride": (6, "operand [ab] reads line 8, element 0 .*: that is row 16, feature 0|reaches byte"),
    "a wrong first line": (7, "operand b reads line 56, element 0 .* row 0, feature 0 of another tensor copy"),
    "no fence of registers": (8, "begins a product without wgmma.fence"),
    "no wait for the product": (9, f"uses sums of the product that was begun at .*: {NO_GROUP}"),
    "no commit": (10, NO_GROUP),
    "half the bytes": (11, f"{EARLY}|phase of parity"),
    "twice the bytes": (12, "waits for the phase of parity 0 .* lacks 0 of 1 arrivals and 16384 bytes"),
    "an arrival too many": (13, f"once more than the 1 times that a phase takes|{EARLY}"),
    "mbarriers that no copy sees": (14, "fence.proxy.async is missing after it"),
    "mbarriers that no thread sees": (15, "race: uses the mbarrier|is no mbarrier"),
    "registers that nobody gave": (16, "waits for 256 registers a thread: it has 248"),
    "a named barrier for more": (17, "waits at named barrier 1, to which 128 of 256 threads have come"),
    "sums that change": (18, "register 3 of the sums that products begun at .* write was changed"),
    "a warp that stays away": (19, "thread 224,? (which )?has returned"),
    "a copy to an odd place": (20, "no multiple of 128"),
    "an mbarrier that is none": (21, "is no mbarrier: nobody has made one there"),
    "a descriptor that reaches too far": (22, "reaches byte|nobody has written"),
    "a thread that reads too early": (23, f"reads byte .* ({EARLY})"),
    "sums that are not held": (24, "adds to sums of the product .* nobody held them after the wait"),
}


@pytest.fixture(scope="module")
def hopper(build_cache: Path) -> Fixtures:
    """The fixtures of Hopper, built for the processor at hand."""
    return Fixtures(compiled(KERNELS / "hopper.cu", build_cache, "-march=native"))


def drawn(rows: int, columns: int, seed: int) -> Array:
    """Small whole numbers, so that sums are exact."""
    values = numpy.random.default_rng(seed).integers(-4, 5, (rows, columns))
    return aligned(values.astype(numpy.float16)).reshape(rows, columns)


def product(hopper: Fixtures, faults: int, rounds: int = 3) -> tuple[str, Array, Array]:
    """The fault of one launch, its output, and the right output."""
    a, b, output = drawn(64, 64, 1), drawn(64, 64, 2), numpy.full((64, 64), numpy.nan, numpy.float32)
    fault = hopper.fault("product", a, b, output, faults, rounds, 64, 64, 0)
    return fault, output, rounds * a.astype(numpy.float32) @ b.astype(numpy.float32).T


@pytest.mark.slow
def test_a_pipeline_of_copies_and_products_is_right(hopper: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right in any order of threads, and whenever copies land."""
    for seed in each_seed(monkeypatch, 20):
        fault, output, right = product(hopper, 0, rounds=1 + seed % 4)
        assert "" == fault
        assert (output == right).all()


@pytest.mark.parametrize("mistake", FAULTS)
def test_what_is_missing_is_said(hopper: Fixtures, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each missing line is reported in every schedule, with its place in the source."""
    bit, says = FAULTS[mistake]
    for _ in each_seed(monkeypatch, 12):
        fault, _, _ = product(hopper, 1 << bit)
        assert re.search(says, fault), fault
        assert places(fault)


@pytest.mark.parametrize(
    ("rows", "columns", "first_row"), [(64, 40, 0), (50, 64, 0), (90, 24, 64), (100, 64, -10)]
)
def test_what_a_tensor_does_not_have_is_zero(hopper: Fixtures, rows: int, columns: int, first_row: int) -> None:
    """Rows and features beyond its end, and rows before its first."""
    a, b = drawn(rows, columns, 3), drawn(64, columns, 4)
    output = numpy.full((64, 64), numpy.nan, numpy.float32)
    assert "" == hopper.fault("product", a, b, output, 0, 1, rows, columns, first_row)
    whole = numpy.zeros((64, columns), numpy.float32)
    for line in range(64):
        if 0 <= first_row + line < rows:
            whole[line] = a[first_row + line]
    assert (output == whole @ b.astype(numpy.float32).T).all()


def test_lines_of_the_right_operand_may_be_its_rows(hopper: Fixtures) -> None:
    """Turned around in shared memory; the left operand comes from registers."""
    values, output = drawn(16, 64, 5), numpy.full((64, 64), numpy.nan, numpy.float32)
    assert "" == hopper.fault("lines", values, output)
    assert (output == numpy.tile(values, (4, 1))).all()


@pytest.mark.parametrize(
    ("rows", "stride", "box_rows", "says"),
    [
        (8, 64, 8, ""),
        (8, 60, 8, "stride of 60 elements"),
        (8, -64, 8, "stride of -64 elements"),
        (0, 64, 8, "of size 0"),
        (8, 64, 257, "box has 257 rows"),
    ],
)
def test_tensor_maps_are_checked(hopper: Fixtures, rows: int, stride: int, box_rows: int, says: str) -> None:
    """The emulator refuses what the driver refuses, and adds the reason."""
    assert says in hopper.fault("map_of", drawn(8, 64, 6), rows, stride, box_rows)
