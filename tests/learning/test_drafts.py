"""A failure that three sessions met becomes a draft: its name, steps, cures and evidence."""

import pytest

from loop.learning.drafts import Draft, drafts, free_number, pattern_of
from loop.model.pattern import Pattern
from tests.learning.test_failures import KEY, row, seen
from tests.makers import make_pattern

THREE = [row("a", seen()), row("b", ground="g2"), row("c", seen()), row("d", seen()), row("e", ground="g3")]


def test_three_sessions_make_a_draft_two_do_not() -> None:
    """Sessions that were recorded elsewhere do not count, nor does one session twice."""
    assert [KEY] == [one.key for one in drafts(THREE)]
    assert () == drafts(THREE[:3])
    assert () == drafts([*THREE[:3], row("d", seen(), recorded=True)])
    assert () == drafts([row("a", seen(), seen(step="load")), row("b", seen())])


def test_what_was_accepted_or_dismissed_is_not_drafted_again() -> None:
    """By the hash of its signature."""
    assert () == drafts(THREE, settled={KEY})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("undefined symbol: _ZN3fooEv", "undefined-symbol-zn3fooev-000000"),
        ("139 exits", "failure-139-exits-000000"),
        ("\u00e4\u00f6", "failure-000000"),
        ("x" * 200, f"{'x' * 40}-000000"),
    ],
)
def test_a_draft_has_a_name_that_a_pattern_may_have(text: str, name: str) -> None:
    """Words of the signature, whatever it is, and the beginning of its hash."""
    assert name == Draft(KEY, text, ()).name


def made() -> Pattern:
    """The draft of the three, from a pattern of three steps."""
    (draft,) = drafts(THREE)
    of = make_pattern("unit", ("sources", "build", "load"))
    return pattern_of(draft, of, ["cured in e by k.c", "cured in b by k.c"], "--- a/k.c\n", 107)


def test_a_draft_has_the_steps_up_to_the_one_that_failed_and_what_cured_it() -> None:
    """The gate of a step may read what those before it found."""
    pattern = made()
    assert ["sources", "build"] == [step.id for step in pattern.steps]
    assert "last time: cured in e by k.c" == pattern.steps[-1].mend
    assert pattern.failure is not None
    assert (KEY, "broken") == (pattern.failure.signature, pattern.failure.text)
    assert ("cured in e by k.c", "cured in b by k.c") == pattern.failure.cured_by
    assert "--- a/k.c\n" == pattern.failure.diff
    assert 107 == pattern.number


def test_without_a_cure_a_draft_has_what_the_step_said() -> None:
    """Its hint, of the last session that met it."""
    (draft,) = drafts([row(name, seen(hint=f"mend {name}")) for name in "abc"])
    pattern = pattern_of(draft, make_pattern("unit", ("sources", "build")), [], "", 107)
    assert "mend c" == pattern.steps[-1].mend


def test_a_draft_names_its_sessions_in_order() -> None:
    """Those that met it, and those that got past it."""
    assert ["a", "b", "c", "d", "e"] == [one.session for one in made().evidence]


def test_own_patterns_are_numbered_from_a_hundred() -> None:
    """After the highest that is taken."""
    assert [100, 100, 131] == [free_number(taken) for taken in ([], [1, 20], [130])]
