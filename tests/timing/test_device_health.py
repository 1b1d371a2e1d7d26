"""Blocks that the GPU spoilt are dropped; a side that is held back again and again is a result."""

from dataclasses import dataclass

import pytest

from loop.timing.device_health import Drop, Span, drop, persistent


@dataclass(frozen=True)
class State:
    """A GPU at one moment, as far as the rules look."""

    sm_clock_mhz: float | None = 1980
    throttle: tuple[str, ...] = ()


def make_spans(*clocks: float | None, throttle: tuple[str, ...] = ()) -> list[Span]:
    """Segments that begin and end at one clock each; throttled, if at all, at the end of the last."""
    spans: list[Span] = [(State(clock), State(clock)) for clock in clocks]
    return [*spans[:-1], (spans[-1][0], State(clocks[-1], throttle))]


QUIET = make_spans(1980, 1980)
THROTTLED = make_spans(1980, 1980, throttle=("power cap",))


def test_a_quiet_block_counts() -> None:
    """Equal clocks and nothing that holds them back."""
    assert drop(QUIET, QUIET) is None


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_block_with_one_side_throttled_is_dropped(side: str) -> None:
    """One reading of one segment is enough; the reason is told."""
    found = drop(THROTTLED, QUIET) if side == "reference" else drop(QUIET, THROTTLED)
    assert found is not None
    assert side == found.side
    assert f"the {side} was throttled (power cap)" in found.reason


def test_a_block_with_both_sides_throttled_counts() -> None:
    """Both pay the same; a GPU at its power limit is the rule for large matrix products."""
    assert drop(THROTTLED, make_spans(1980, throttle=("heat",))) is None


def test_clocks_more_than_one_per_cent_apart_drop_the_block() -> None:
    """The slower side is the one that was held back, and both clocks are told."""
    expected = "median SM clocks differ by 1.5%: 1950 MHz for the reference, 1980 MHz for the candidate"
    assert Drop("reference", expected) == drop(make_spans(1950, 1950), QUIET)


def test_clocks_up_to_one_per_cent_apart_count() -> None:
    """A GPU's clock moves in steps of 15 MHz, and one step is no difference."""
    assert drop(make_spans(1965, 1965), QUIET) is None
    assert drop(make_spans(990), make_spans(1000)) is None


def test_the_median_of_the_clocks_decides() -> None:
    """One odd reading among several moves nothing."""
    assert drop(make_spans(1980, 1200, 1980), QUIET) is None


def test_clocks_that_nobody_tells_drop_nothing() -> None:
    """A driver that does not tell is no evidence, and neither is a side without segments."""
    assert drop(make_spans(None, None), QUIET) is None
    assert drop(QUIET, []) is None
    assert drop(make_spans(None, 1500), QUIET) is not None


def test_a_side_dropped_in_most_blocks_is_a_result() -> None:
    """More than half, for the same side; the commonest reason stands for all."""
    drops = [Drop("candidate", "hot"), Drop("candidate", "cap"), Drop("candidate", "cap")]
    found = persistent(drops, 5)
    assert found is not None
    assert "the candidate was held back in 3 of 5 blocks: cap" == found.message


@pytest.mark.parametrize("sides", [["candidate"] * 3, ["candidate"] * 3 + ["reference"] * 3, []])
def test_half_of_the_blocks_is_no_result(sides: list[str]) -> None:
    """Half of six for a side is chance, also when the other side has the other half."""
    assert persistent([Drop(side, "cap") for side in sides], 6) is None  # type: ignore[arg-type]
