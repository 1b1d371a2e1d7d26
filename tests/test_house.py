"""What `make house` measures stays as it is."""

from tests import house


def test_no_code_branches_on_a_sentence() -> None:
    """Text that somebody wrote to be read is no protocol; reasons are types."""
    assert [] == house.sentence_branches()


def test_sentences_of_the_pages_are_short() -> None:
    """In ARCHITECTURE and the documents: 15 words in the middle, 25 at the 90th percentile."""
    median, most = house.words()
    assert median <= 15
    assert most <= 25


def test_a_verdict_is_followed_in_one_room() -> None:
    """From samples to the word: three files."""
    assert {"samples", "ratios", "verdicts"} == {name.split(".")[-1] for name in house.way_of_a_verdict()}
