"""Finding by a few words."""

from loop.learning.searching import query_terms, search

TEXTS = {
    "tuning": "tuning Tuning tiles and warps are guessed, not the baseline",
    "linking": "linking Single unit undefined symbol: rows_of link error",
    "baseline-first": "baseline-first Baseline first without a measured baseline",
}


def test_most_words_count_and_an_error_finds_most_of_it() -> None:
    """Paths and addresses of an error are in no text; how many words fitted is said."""
    assert (["baseline-first"], 2) == search(query_terms("measured baseline"), TEXTS)
    terms = query_terms("/tmp/x/kernel.so: undefined symbol: rows_of")
    names, count = search(terms, TEXTS)
    assert ["linking"] == names
    assert count < len(terms)
