"""A plan's objective and the session's grade: what they read, and where the time went."""

from typing import Any

import pytest

from loop.base.errors import UsageError
from loop.model.bisect import BisectOutput
from loop.model.plan import Reached
from loop.model.record import Finished, Revision, SessionHead, Status
from loop.session.objective import (
    findings_of,
    judge_objective,
    refuse_unmet_requirement,
    skipped_if_nothing_judged,
)
from loop.session.view import grade_session as graded
from tests.makers import (
    make_built,
    make_check,
    make_finished,
    make_measured,
    make_measurement,
    make_pattern,
    make_plan,
    make_record,
    make_report,
    make_session_head,
    make_verify,
)

RIGHT = make_finished("verify", output=make_verify())
WRONG = make_finished("verify", output=make_verify(make_check(right=False)).model_copy(update={"wrong": ("cpu",)}))


def measured(*ratios: float) -> Finished:
    """A step that measured `cpu` on as many workloads."""
    every = [make_measurement(f"B1 H1 S{64 << n} D64 float32", ratio) for n, ratio in enumerate(ratios)]
    return make_finished("measure", output=make_measured(*every))


def head_of(**plan: Any) -> SessionHead:
    """A session whose plan says this of its objective."""
    made = make_plan()
    return make_session_head(plan=made.model_copy(update={"plan": made.plan.model_copy(update=plan)}))


def judged(success: str, *finished: Finished) -> Reached:
    """Whether these steps reach an objective."""
    reached = judge_objective(head_of(success=success), finished, {"minutes": 3.0})
    assert reached is not None
    return reached


def test_a_wrong_variant_has_no_ratio_and_is_unexplained_until_a_search_names_its_commit() -> None:
    """A search that named a range explains nothing yet."""
    facts: Any = findings_of([WRONG], ["cpu"])
    assert (["cpu"], [], ["cpu"]) == (facts["wrong"], facts["right"], facts["unexplained"])
    assert None is facts["best"]["ratio"]
    output = BisectOutput(ok=True, message="nothing", variant="cpu")
    facts = findings_of([WRONG, make_finished("search", action="bisect.search", output=output)], ["cpu"])
    assert ["cpu"] == facts["unexplained"]


def test_an_objective_is_reached_or_missed_by_how_much() -> None:
    """The unknown is missed; one over variants is not judged where none was."""
    assert () == judged("cpu.ratio >= 1.5 and wrong == []", RIGHT, measured(1.6, 1.7)).missed
    assert "cpu.ratio is 1.31, asked" in judged("cpu.ratio >= 1.5", RIGHT, measured(1.31)).missed[0].words
    assert "cpu.ratio is not known" in judged("cpu.ratio >= 1.5", RIGHT).missed[0].words
    assert () == judged("session.minutes < 5 and device == 'cpu'").missed
    bad = make_verify(make_check(right=False)).variants[0]
    untrusted = make_verify().model_copy(update={"control": bad, "right": ()})
    for steps in ([], [make_finished("build", output=make_built())], [make_finished(output=untrusted)]):
        assert not judged("wrong == []", *steps).judged
    assert judged("session.minutes < 5").judged
    assert judged("wrong == []", RIGHT).judged
    shown = make_report(make_record(objective=Reached(success="wrong == []", judged=False)), [])
    assert "not judged" in shown
    assert "bjective reached" not in shown


def test_a_plan_that_requires_what_is_missing_is_refused() -> None:
    """The part that does not hold is named, with what there is."""
    head = head_of(requires="revision.commit is not none and machine.cores >= 1")
    refuse_unmet_requirement(head)
    bare = head.model_copy(update={"revision": Revision(commit=None)})
    with pytest.raises(UsageError, match=r"revision.commit is not known, asked: `revision.commit is not none`"):
        refuse_unmet_requirement(bare)


def test_a_session_that_judged_nothing_did_not_pass() -> None:
    """Where its plan verifies, or its objective speaks of variants; steps that only look pass."""
    looks = make_plan(make_pattern("look", ("sources",)))
    for head in (make_session_head(), head_of(success="wrong == []")):
        assert "skipped" == skipped_if_nothing_judged(head, [], "passed", "all 2 steps passed")[0]
        assert "passed" == skipped_if_nothing_judged(head, [RIGHT], "passed", "all 2 steps passed")[0]
    assert "passed" == skipped_if_nothing_judged(make_session_head(plan=looks), [], "passed", "it passed")[0]


STEPS = (make_finished("verify"), make_finished("measure"))
PLAN = make_plan().plan


def grade(status: Status = "passed", reason: str = "", steps: Any = STEPS, **more: Any) -> tuple[str, str]:
    """Letter and reason of a session of a minute's plan that took 12 s and states no objective."""
    return graded(PLAN, status, reason, steps, more.get("objective"), more.get("seconds", 12.0))


def test_a_grade_needs_gates_objective_and_time() -> None:
    """All passed in time is an A; an overrun costs a letter, and the reason names it."""
    assert ("A", "The session passed every gate within its time") == grade()
    reached = Reached(success="wrong == []")
    assert ("A", "The session reached its objective, and passed every gate within its time") == grade(
        objective=reached
    )
    late = [make_finished("build", seconds=12.0)]
    assert ("B", "Every gate passed, but over budget: baseline-first/build (12.0 of 10 s)") == grade(steps=late)
    letter, reason = grade(seconds=102.0)
    assert ("B", "Every gate passed, but the session took 1 min 42 s of 60.0 s") == (letter, reason)
