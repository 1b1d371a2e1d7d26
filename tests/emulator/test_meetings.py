"""Synchronisation of threads: warps converge, blocks meet at barriers, and missing threads are named."""

import itertools
import re

import numpy
import pytest

from tests.emulator.fixtures import Fixtures, each_seed

RIGHT = ("meets_at_two_places", "goes_on_without_a_lane", "part_of_a_warp", "barriers_where_all_threads_are")
DIVERGED = {
    "half_a_warp_shuffles": "a shuffle together, thread 16 waits in __syncthreads",
    "half_a_warp_votes": "a vote together, thread 16 is in __syncwarp",
    "half_a_warp_fetches": "ldmatrix together, thread 16 waits in __syncthreads",
    "half_a_warp_fetches_transposed": "thread 16 is in ldmatrix",
    "half_a_warp_multiplies": r"mma \(f16\) together, thread 16 waits in __syncthreads",
    "multiplies_at_two_places": r"mma \(f16\) together, thread 16 is in mma",
    "multiplies_after_a_lane_has_returned": "thread 7 has returned",
    "fetches_after_a_lane_has_returned": "thread 7 has returned",
    "multiplies_with_part_of_a_warp": r"mma \(f16\) together, thread 40 does not exist",
}
DEADLOCKS = {
    "a_thread_returns_before_a_barrier": "for thread 33, which has returned",
    "a_warp_returns_before_a_barrier": "for thread 63, which has returned",
    "two_different_barriers": "while thread 32 waits in another",
    "a_barrier_more_for_a_warp": "for thread 63, which has returned",
}


@pytest.mark.parametrize("name", RIGHT)
def test_threads_that_come_together_go_on(emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial warps, lanes that have returned, and branches that all threads take are as CUDA allows them."""
    assert {""} == {emulated.fault(name) for _ in each_seed(monkeypatch)}


@pytest.mark.parametrize("name", DIVERGED)
def test_a_warp_has_to_be_whole(emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If half of a warp diverges, a thread of each half is named; `.aligned` needs all lanes."""
    for _ in each_seed(monkeypatch):
        fault = emulated.fault(name)
        assert ": divergence: all lanes of the warp have to execute " in fault
        assert re.search(DIVERGED[name], fault), fault


@pytest.mark.parametrize("name", ["shuffles_from_a_lane_that_has_returned", "shuffles_from_a_lane_that_never_was"])
def test_a_lane_that_is_gone_has_no_value(emulated: Fixtures, name: str) -> None:
    """The remaining lanes may shuffle; a value of an exited lane is a fault."""
    assert re.search(r"shuffles a value from lane \d+, which is not there", emulated.fault(name))


@pytest.mark.parametrize("name", DEADLOCKS)
def test_a_barrier_is_for_all_threads_and_one(
    emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's guide does not promise that a barrier without exited threads works, so it is a fault."""
    for _ in each_seed(monkeypatch):
        fault = emulated.fault(name)
        assert ": deadlock: waits in __syncthreads " in fault
        assert DEADLOCKS[name] in fault


@pytest.mark.slow
def test_a_thread_that_waits_for_memory_to_change_is_stopped(emulated: Fixtures) -> None:
    """No other thread is going to run: it would spin for ever."""
    assert "spins: it touches memory for ever without meeting other threads" in emulated.fault("spins")


SHAPES = [((2, 3, 4), (5, 3, 2)), ((7, 1, 1), (33, 1, 1)), ((1, 1, 5), (1, 2, 64))]


@pytest.mark.parametrize(("grid", "block"), SHAPES)
def test_threads_and_blocks_know_where_they_are(
    emulated: Fixtures, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    """Along x, y and z; x runs fastest; the last warp may be partial."""
    shape = numpy.array([grid, block], numpy.uint32)
    indices = numpy.full((int(numpy.prod(shape)), 6), 99, numpy.uint32)
    assert "" == emulated.fault("indices", shape[0], shape[1], indices)
    expected = itertools.product(*(range(n) for n in (*reversed(grid), *reversed(block))))
    assert [list(place) for place in expected] == indices.tolist()
