"""Finding by a few words: exact before near, and the page's script finds the same."""

from loop.learning.searching import query_terms, search

TEXTS = {
    "tuning": ("tuning Tuning", "tiles and warps are guessed, not the baseline"),
    "linking": ("linking Single unit", "undefined symbol: rows_of link error"),
    "baseline-first": ("baseline-first Baseline first", "without a measured baseline"),
}


def test_a_name_comes_before_a_mention() -> None:
    """Whose title it is, then who speaks of it."""
    assert (["baseline-first", "tuning"], 1) == search(query_terms("the baseline"), TEXTS)


def test_a_pasted_error_finds_what_has_most_of_it() -> None:
    """Paths and addresses of it are in no text; how many words fitted is said."""
    terms = query_terms("/tmp/x/kernel.so: undefined symbol: rows_of")
    names, count = search(terms, TEXTS)
    assert ["linking"] == names
    assert count < len(terms)
