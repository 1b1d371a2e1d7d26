"""Shared memory between threads: in every schedule ordered accesses pass, and races are found."""

import pytest

from tests.emulator.fixtures import Fixtures, each_seed, line_of, places, threads

RIGHT = (
    "barrier",
    "warp_barrier",
    "barrier_before_refill",
    "overwrite_after_a_barrier",
    "overwrite_after_a_warp_barrier",
    "handed_on",
    "two_buffers",
    "neighbours",
    "words_then_halves",
    "same_value_by_a_warp",
    "many_warp_barriers",
)
RACES = (
    "no_barrier",
    "no_warp_barrier",
    "shuffle_is_no_barrier",
    "warp_barrier_for_two_warps",
    "no_barrier_before_refill",
    "half_of_a_word",
)


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_barrier_orders_passes(emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no false alarm, whichever warp runs ahead."""
    seeds = each_seed(monkeypatch, 4 if name.startswith("many") else 40)
    assert {""} == {emulated.fault(name) for _ in seeds}


@pytest.mark.parametrize("name", RACES)
def test_a_missing_barrier_is_found_at_once(
    emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run finds it with any seed, and names both lines and both threads."""
    lines = {line_of("races.cu", f"{name}: {access}") for access in ("reads", "writes")}
    for _ in each_seed(monkeypatch):
        fault = emulated.fault(name)
        assert ": race: " in fault
        assert "no barrier lies between" in fault
        assert lines == places(fault)
        assert 2 == len(set(threads(fault)))


@pytest.mark.parametrize("warp", [0, 1, 2])
def test_a_write_races_with_readers_of_another_warp(
    emulated: Fixtures, warp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the warps that read before it one is remembered that is not the writer's own."""
    for _ in each_seed(monkeypatch):
        fault = emulated.fault(f"overwrite_by_warp_{warp}")
        assert ": race: " in fault
        assert 2 == len({thread // 32 for thread in threads(fault)})


@pytest.mark.parametrize(
    "name", ["different_values_by_a_warp", "same_value_by_two_warps", "same_value_by_two_instructions"]
)
def test_only_one_instruction_of_one_warp_may_write_one_value_to_one_place(
    emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else depends on the order, or is not promised by the guide."""
    assert all(": race: writes" in emulated.fault(name) for _ in each_seed(monkeypatch))


@pytest.mark.parametrize(("name", "byte"), [("unwritten", 128), ("half_unwritten", 2)])
def test_what_nobody_has_written_may_not_be_read(emulated: Fixtures, name: str, byte: int) -> None:
    """Shared memory holds anything at first; half a word counts."""
    assert f"reads byte {byte} of shared memory, which nobody has written" in emulated.fault(name)


def test_a_write_races_with_the_other_lanes_that_read(emulated: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the writer was the last to read, or the first, another lane is named."""
    for _ in each_seed(monkeypatch):
        fault = emulated.fault("overwrite_what_the_warp_reads")
        assert ": race: " in fault
        assert 2 == len(set(threads(fault)))
