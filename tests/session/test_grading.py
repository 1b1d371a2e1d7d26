"""Grades follow the printed rule, the lowest letter that applies."""

from typing import Any

from loop.model.plan import Reached
from loop.model.record import Status
from loop.session.view import grade_session as graded
from tests.makers import make_finished, make_plan

STEPS = (make_finished("verify"), make_finished("measure"))
PLAN = make_plan().plan


def grade(status: Status = "passed", reason: str = "", steps: Any = STEPS, **more: Any) -> tuple[str, str]:
    """Letter and reason of a session of a minute's plan that took 12 s and states no objective."""
    return graded(PLAN, status, reason, steps, more.get("objective"), more.get("seconds", 12.0))


def test_a_needs_gates_objective_and_time() -> None:
    """All passed in time; where an objective is stated, it is reached."""
    assert ("A", "The session passed every gate within its time") == grade()
    reached = Reached(success="wrong == []")
    assert ("A", "The session reached its objective, and passed every gate within its time") == grade(
        objective=reached
    )


def test_an_overrun_costs_a_letter_and_is_named() -> None:
    """The reason says which step and by how much, and what the session took of its minutes."""
    late = [make_finished("build", seconds=12.0)]
    assert ("B", "Every gate passed, but over budget: baseline-first/build (12.0 of 10 s)") == grade(steps=late)
    letter, reason = grade(seconds=102.0)
    assert ("B", "Every gate passed, but the session took 1 min 42 s of 60.0 s") == (letter, reason)
