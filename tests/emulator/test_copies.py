"""cp.async: no thread may touch its destination between the issue and the wait."""

import numpy
import pytest

from tests.emulator.fixtures import Fixtures, each_seed, line_of, places, threads

RIGHT = (
    "copied",
    "own_copy_needs_no_barrier",
    "first_of_two_groups",
    "empty_groups",
    "never_waited_for",
    "copies_after_a_barrier",
    "pipeline",
)
IN_FLIGHT = {
    "read_before_its_wait": "reads byte",
    "written_before_its_wait": "writes byte",
    "copied_over_before_its_wait": "copies over byte",
    "not_committed": "reads byte",
    "barrier_is_no_wait": "reads byte",
    "second_of_two_groups": "reads byte",
}
WRONG_PLACE = {
    "misaligned_destination": "address 8 of shared memory is not a multiple of 16",
    "misaligned_source": "reads global memory at an address that is not a multiple of 16",
    "destination_outside": "touches bytes 64 to 79 of shared memory, the block has 64",
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.slow
def test_what_is_waited_for_may_be_used(emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own thread after the wait, by others after a barrier that follows it."""
    assert {""} == {emulated.fault(name) for _ in each_seed(monkeypatch)}


@pytest.mark.parametrize("name", IN_FLIGHT)
def test_before_its_wait_nobody_may_touch_a_destination(
    emulated: Fixtures, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the data is there early or late; neither a barrier nor the wait for another group helps."""
    for _ in each_seed(monkeypatch):
        fault = emulated.fault(name)
        assert IN_FLIGHT[name] in fault
        assert "has not been waited for" in fault


def test_a_wait_is_no_barrier(emulated: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that reads copied data races with the wait."""
    lines = {line_of("copies.cu", f"wait_is_no_barrier: {access}") for access in ("waits", "reads")}
    named = set()
    for _ in each_seed(monkeypatch):
        fault = emulated.fault("wait_is_no_barrier")
        assert ": race: " in fault
        assert 2 == len(set(threads(fault)))
        named |= places(fault)
    assert lines < named


@pytest.mark.parametrize("name", WRONG_PLACE)
def test_addresses_are_checked_when_a_copy_is_issued(emulated: Fixtures, name: str) -> None:
    """Source and destination are checked."""
    assert WRONG_PLACE[name] in emulated.fault(name)


def test_what_is_not_valid_becomes_zero_and_is_not_read(
    emulated: Fixtures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source may point anywhere."""
    for _ in each_seed(monkeypatch):
        output = numpy.full(8, numpy.nan, numpy.float32)
        assert "" == emulated.fault("zeros", output)
        assert [1, 2, 3, 4, 0, 0, 0, 0] == output.tolist()
