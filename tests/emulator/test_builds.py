"""The same fixtures, built otherwise: with the C library's fibers, and by the compiler for a GPU."""

from pathlib import Path

import pytest

from tests.emulator.fixtures import KERNELS, Fixtures, compiled
from tests.emulator.test_copies import IN_FLIGHT
from tests.emulator.test_meetings import DEADLOCKS, DIVERGED
from tests.emulator.test_races import RACES, RIGHT


@pytest.fixture(scope="module")
def portable(build_cache: Path) -> Fixtures:
    """The fixtures with fibers that the C library switches."""
    return Fixtures(compiled(KERNELS / "everything.cu", build_cache, "-O0", "-DLOOP_PORTABLE_FIBERS"))


@pytest.mark.slow
def test_portable_fibers_find_the_same(portable: Fixtures) -> None:
    """`swapcontext`, used where loop has no switch of its own, finds the same faults."""
    assert {""} == {portable.fault(name) for name in RIGHT}
    assert [] == [name for name in (*RACES, *IN_FLIGHT, *DEADLOCKS, *DIVERGED) if not portable.fault(name)]
