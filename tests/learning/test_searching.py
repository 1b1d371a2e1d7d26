"""Finding by a few words: exact before near, and the page's script finds the same."""

import pytest

from loop.learning.searching import search

BASELINE = ("baseline-first", ((8.0, "baseline-first Baseline first"), (5.0, "without a measured baseline")))
LINKING = ("linking", ((8.0, "linking Single unit"), (5.0, "undefined symbol: rows_of link error")))
TUNING = ("tuning", ((8.0, "tuning Tuning"), (5.0, "tiles and warps are guessed, not the baseline")))
ALL = (TUNING, LINKING, BASELINE)


def found(question: str) -> list[str]:
    """Names, the best first."""
    return [hit.key for hit in search(question, ALL)]


def test_a_name_comes_before_a_mention() -> None:
    """Whose title it is, then who speaks of it."""
    assert ["baseline-first", "tuning"] == found("baseline")


@pytest.mark.parametrize("typed", ["base", "BASELINE"])
def test_parts_are_found(typed: str) -> None:
    """A beginning, in any case."""
    assert "baseline-first" == found(typed)[0]


@pytest.mark.parametrize("typed", ["", "   ", "?!", "zzzz", "unt", "basline"])
def test_what_is_not_there_is_not_found(typed: str) -> None:
    """A word has to be right."""
    assert [] == found(typed)


def test_a_pasted_error_finds_what_has_most_of_it() -> None:
    """Paths and addresses of it are in no text; how many words fitted is said."""
    hits = search("/tmp/x/kernel.so: undefined symbol: rows_of", ALL)
    assert ["linking"] == [hit.key for hit in hits]
    assert hits[0].matched < hits[0].asked


def test_words_that_say_nothing_count_only_alone() -> None:
    """`the` does not bring up everything that has it."""
    assert ["linking"] == found("the link error")
    assert ["tuning"] == found("the")
