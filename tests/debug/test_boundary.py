"""Boundaries: found where there is one, and not claimed where there is none."""

from collections.abc import Callable

import pytest

from loop.debug.boundary import describe, search, sizes_of
from loop.model.debugging import Outcome

Judge = Callable[[int], Outcome]


def fails_where(condition: Callable[[int], bool]) -> Judge:
    """Every size fails or passes."""
    return lambda size: "fails" if condition(size) else "passes"


def tried(judge: Judge, size: int, most: int = 1000) -> dict[int, Outcome]:
    """What is known once a search from this failing size has ended, or was ended after so many."""
    found: dict[int, Outcome] = {size: "fails"}
    going = search(size)
    try:
        asked = next(going)
        while len(found) <= most:
            assert asked not in found, "nothing is tried twice"
            assert 1 <= asked <= max(2 * size, 64, 3 * size + 1)
            found[asked] = judge(asked)
            asked = going.send(found[asked])
    except StopIteration:
        pass
    return found


@pytest.mark.parametrize("first", [2, 3, 33, 64, 65, 100, 127, 128])
@pytest.mark.parametrize("size", [128, 129, 512])
def test_a_boundary_is_found_to_the_unit(first: int, size: int) -> None:
    """Wherever it is, in two dozen tries."""
    found = tried(fails_where(lambda n: n >= first), size)
    expected = f"passes up to S={first - 1}, fails from S={first} on (tried from 1 to {2 * size})"
    assert expected == describe("S", found)
    assert 26 > len(found)


@pytest.mark.parametrize(
    ("judge", "size", "expected"),
    [
        (fails_where(lambda n: True), 16, "fails at every S tried, 1, 2, 4, 8, 15, ... 64"),
        (fails_where(lambda n: n <= 16), 4, "fails up to S=16, passes from S=17 on (tried from 1 to 32)"),
        (
            fails_where(lambda n: n == 128),
            128,
            "fails at S=128 alone, passes at 127 and 129 (tried from 1 to 256)",
        ),
        (
            fails_where(lambda n: 64 < n <= 100),
            80,
            "fails at S=65 to 100, passes at 64 and 101 (tried from 1 to 160)",
        ),
    ],
)
def test_what_was_tried_is_said(judge: Judge, size: int, expected: str) -> None:
    """No size that was not tried is spoken of."""
    assert expected == describe("S", tried(judge, size))


@pytest.mark.parametrize(
    ("judge", "size", "start"),
    [
        (fails_where(lambda n: n % 2 == 1), 65, "fails where S is no multiple of 2: fails at 1, 3, "),
        (fails_where(lambda n: n % 64 != 0), 65, "fails where S is no multiple of 64: fails at 1, 2, "),
        (fails_where(lambda n: n % 48 != 0), 97, "fails where S is no multiple of 48: fails at 1, 2, "),
        (fails_where(lambda n: n % 64 == 0), 64, "fails where S is a multiple of 64: fails at 64, 128, 192, "),
    ],
)
def test_a_rule_on_multiples_is_seen(judge: Judge, size: int, start: str) -> None:
    """The usual mistake with tails: neighbours show that there is no boundary, more multiples what there is."""
    assert describe("S", tried(judge, size)).startswith(start)


def test_what_follows_no_rule_is_listed() -> None:
    """Sizes that fail and sizes that pass, and no boundary between them."""
    found = tried(fails_where(lambda n: n > 64 and n % 64 != 0), 129)
    expected = "no single boundary: fails at S=127, 129, 130, 131, 258, passes at 1, 2, 4, 8, 16, ... 128"
    assert expected == describe("S", found)


def test_sizes_that_a_kernel_declines_are_neither_right_nor_wrong() -> None:
    """A boundary among sizes it does not take is not claimed."""

    def judge(size: int) -> Outcome:
        return "other" if size not in (64, 128) else "fails" if size == 128 else "passes"

    expected = "passes at D=64, fails at D=128; of sizes between them it cannot be told"
    assert expected == describe("D", tried(judge, 128))
    alone = tried(lambda size: "fails" if size == 128 else "other", 128)
    assert describe("D", alone).startswith(
        "fails at every D tried, 128 (at D=1, 2, 4, 8, 16, ... 256 it cannot be told)"
    )


def test_a_search_that_was_ended_says_what_it_has() -> None:
    """Between the last size that passes and the first that fails there is room, and that is said."""
    found = tried(fails_where(lambda n: n >= 65), 128, most=9)
    assert "passes at S=64, fails at S=96; nothing between them was tried" == describe("S", found)
    assert (96, 128, 256) == sizes_of(found, "fails")
