"""An error map in words."""

from typing import Any

import pytest

from loop.debug.explaining import describe_common_location, describe_location
from loop.model.measurement import Check, Span
from loop.model.signature import Signature
from tests.makers import make_check

SIGNATURE = Signature.model_validate(
    {"inputs": {"q": "B H Sq D"}, "outputs": {"output": "B H Sq D"}, "words": {"H": "heads", "Sq": "query rows"}}
)


def spans(**found: tuple[int, int, int, int]) -> dict[str, Span]:
    """First, last, count and size by dimension."""
    names = ("first", "last", "count", "size")
    return {name: Span(**dict(zip(names, numbers, strict=True))) for name, numbers in found.items()}


def parts(*errors: float | None, wrong: int = 1) -> tuple[Span, ...]:
    """Parts of a dimension with these largest errors; 0 stands for nothing wrong."""
    return tuple(Span(first=n, last=n, count=wrong if e != 0 else 0, largest=e) for n, e in enumerate(errors))


def wrong(**fields: Any) -> Check:
    """A wrong check."""
    return make_check(right=False).model_copy(update=fields)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((64, 127, 64, 128), "query rows 64 to 127 of 128"),
        ((64, 64, 1, 128), "query rows 64 alone, of 128"),
        ((0, 127, 128, 128), "all query rows"),
        ((1, 127, 64, 128), "64 of 128 query rows between 1 and 127"),
    ],
)
def test_a_dimension_in_the_manifests_words(found: tuple[int, int, int, int], expected: str) -> None:
    """All of it, a range, a single index, or some of them."""
    assert expected == describe_location(wrong(spans=spans(Sq=found)), SIGNATURE)


def test_an_error_that_grows_is_said() -> None:
    """As in the recorded history: row 0 exact, row 32 off by 0.158, row 63 by 0.199."""
    check = wrong(
        spans=spans(Sq=(9, 63, 55, 64)), map={"Sq": parts(0, 0.08, 0.158, 0.199), "D": parts(0.2, 0.1, 0.2)}
    )
    expected = "query rows 9 to 63 of 64; the error grows along Sq, from 0.08 to 0.2"
    assert expected == describe_location(check, SIGNATURE)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(64, 99, 36, 100), (64, 127, 64, 128)], "query rows from 64 on"),
        ([(96, 99, 4, 100), (32, 34, 3, 35)], "the last Sq % 8 of query rows: a partial block of 8"),
        ([(99, 99, 1, 100), (34, 34, 1, 35)], "only the last of query rows"),
        ([(0, 0, 1, 100), (0, 0, 1, 35)], "only the first of query rows"),
        ([(50, 99, 50, 100), (17, 34, 18, 35)], "the second half of query rows"),
        ([(1, 99, 50, 100), (1, 33, 17, 35)], "every other of query rows, from 1 on"),
        ([(3, 99, 40, 100), (1, 33, 20, 35)], ""),
        ([(0, 99, 100, 100), (0, 34, 35, 35)], ""),
        ([(64, 99, 36, 100)], ""),
    ],
)
def test_a_place_that_several_sizes_share(found: list[tuple[int, int, int, int]], expected: str) -> None:
    """Of one size nothing is said: the place may move with it, or stay."""
    assert expected == describe_common_location([wrong(spans=spans(Sq=one)) for one in found], SIGNATURE)
