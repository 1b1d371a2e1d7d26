"""Finding by a few words: exact before near, and the page's script finds the same."""

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


def test_a_pasted_error_finds_what_has_most_of_it() -> None:
    """Paths and addresses of it are in no text; how many words fitted is said."""
    hits = search("/tmp/x/kernel.so: undefined symbol: rows_of", ALL)
    assert ["linking"] == [hit.key for hit in hits]
    assert hits[0].matched_words < hits[0].query_words
