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


def test_rooms_are_within_their_budgets() -> None:
    """No room and no count of the tree is above tests/budget.json: a feature pays for what it adds."""
    assert [] == house.over_budget()
