"""Grades follow the printed rule, the lowest letter that applies."""

from loop.model.grade import RULE
from loop.session.grading import grade
from tests.makers import make_finished, make_no_speed, make_speed

STEPS = (make_finished("verify"), make_finished("measure"))


def test_every_letter_has_one_line_of_the_rule() -> None:
    """The report prints the whole rule, best first."""
    assert ["A", "B", "C", "D", "F", "-"] == [letter for letter, _ in RULE]


def test_a_needs_gates_budgets_and_speed() -> None:
    """All passed in time, faster or same everywhere."""
    verdicts = (make_speed("a"), make_speed("b", "same", 1.0))
    letter, reason = grade("passed", "", STEPS, verdicts)
    assert (
        "A",
        "Every step passed within its budget; each of 2 timed workloads has a variant that is faster or same",
    ) == (
        letter,
        reason,
    )


def test_a_session_that_times_nothing_is_graded_by_gates_and_budgets() -> None:
    """A check of the environment can be an A."""
    assert "A" == grade("passed", "", [make_finished("torch", action="environment.torch")], ())[0]


def test_an_overrun_costs_a_letter_and_is_named() -> None:
    """The reason says which step and by how much."""
    letter, reason = grade("passed", "", [make_finished("build", seconds=12.0)], ())
    assert ("B", "Every gate passed, but over budget: baseline-first/build (12.0 of 10 s)") == (letter, reason)


def test_a_few_slow_workloads_are_a_b_most_of_them_a_c() -> None:
    """One of two is half; two of three are more than half."""
    fast, slow = make_speed("a"), make_speed("b", "slower", 0.8)
    unsure = make_speed("c", "inconclusive", 1.0)
    letter, reason = grade("passed", "", STEPS, (fast, slow))
    assert ("B", "Every gate passed, but no variant is faster or same on 1 of 2 timed workloads") == (
        letter,
        reason,
    )
    assert "C" == grade("passed", "", STEPS, (fast, slow, unsure))[0]


def test_a_slow_variant_beside_a_fast_one_costs_nothing() -> None:
    """What counts is that somebody serves each workload: the readable variant may be slow."""
    other = make_speed("a", "slower", 0.3, variant="eager")
    assert "A" == grade("passed", "", STEPS, (make_speed("a"), other))[0]


def test_speed_that_was_to_be_judged_and_was_not_is_a_c() -> None:
    """A measuring step that led to no verdict is no success."""
    assert "C" == grade("passed", "", STEPS, ())[0]


def test_failed_aborted_and_paused_have_letters_of_their_own() -> None:
    """The session's own reason is the grade's."""
    assert ("D", "wrong") == grade("failed", "wrong", STEPS, (make_no_speed(),))
    assert ("F", "interrupted") == grade("aborted", "interrupted", STEPS, ())
    assert ("F", "no step has ended") == grade("aborted", "no step has ended", (), ())
    assert ("-", "paused: handed over") == grade("paused", "handed over", STEPS, ())
