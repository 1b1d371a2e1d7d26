"""The figures of `make house` stay within their limits."""

import statistics

from tests import house


def test_no_code_branches_on_a_sentence() -> None:
    """Code compares types, never the text of a message, hint or reason."""
    assert [] == house.sentence_branches()


def test_sentences_of_the_pages_are_short() -> None:
    """In ARCHITECTURE and the documents: 15 words in the middle, 25 at the 90th percentile."""
    median, tail = house.words()
    assert median <= 15
    assert tail <= 25


def test_rooms_are_within_their_budgets() -> None:
    """No room and no count is above tests/budget.json."""
    assert [] == house.over_budget()


def test_a_function_is_a_thought() -> None:
    """Half of all functions have a body of at least seven lines."""
    assert statistics.median(house.tree().bodies) >= 7
