"""A slice of the cases of damage: a bit flipped, or an end cut off, in anything that is stored."""

import pytest

from tests.faults import damage

COUNT = 40


@pytest.mark.slow
def test_damage_is_named_and_changes_no_figure_without_a_word() -> None:
    """In sessions, state and cache."""
    found = [damage.one_damage(15, number) for number in range(COUNT)]
    assert [] == [broken for broken in found if broken]
