"""Where a failure was seen before, and what cured it: over plain rows."""

from typing import Any

from loop.learning.failures import remembered, sentence
from loop.model.index import Environment, FailureSeen, SessionRow, StepRun
from tests.makers import NOON

KEY = "0" * 12


def seen(subject: str = "", **fields: Any) -> FailureSeen:
    """A failed build."""
    base = {"text": "broken", "key": KEY, "pattern": "unit", "step": "build", "message": "broken"}
    return FailureSeen.model_validate({**base, "subject": subject, **fields})


def row(name: str, *failures: FailureSeen, status: str = "", **fields: Any) -> SessionRow:
    """A session with that step, failed where there are failures."""
    word = status or ("failed" if failures else "passed")
    step = StepRun.model_validate({"pattern": "unit", "step": "build", "status": word, "seconds": 1.0})
    base = {"id": name, "started": NOON, "target": "t", "plan": "p", "device": "cpu", "status": "passed"}
    made = {"variants": ("ours",), "environment": place(), "steps": (step,), "failures": failures, "ground": "g1"}
    return SessionRow.model_validate({**base, **made, **fields})


def place(**fields: Any) -> Environment:
    """A processor with a compiler and torch."""
    return Environment.model_validate({"processor": "x", "torch": "2.3", "compiler": "g++ 12", **fields})


def test_a_failure_that_nobody_met_is_not_remembered() -> None:
    """Nor one of another signature."""
    assert None is remembered([row("a"), row("b", seen(key="1" * 12))], KEY)


def test_the_first_later_session_that_got_past_the_step_is_the_cure() -> None:
    """With what had changed: facts of the environment, commits, files."""
    rows = [
        row("a", seen(), commit="c1"),
        row("b", seen(), commit="c1"),
        row("c", environment=place(torch="2.4", cuda="12.4"), commit="c2", ground="g2"),
        row("d"),
    ]
    memory = remembered(rows, KEY)
    assert memory is not None
    assert memory.cure is not None
    assert ("b", "a") == memory.sessions
    assert ("b", "c") == (memory.cure.failed, memory.cure.session)
    assert ("nvcc not there -> 12.4", "torch 2.3 -> 2.4") == memory.cure.environment
    assert (("c1", "c2"), True) == (memory.cure.commits, memory.cure.sources)


def test_the_last_cure_is_told_where_the_last_failure_has_none() -> None:
    """It still fails today, but something helped once."""
    memory = remembered([row("a", seen()), row("b", ground="g2"), row("c", seen())], KEY)
    assert memory is not None
    assert memory.cure is not None
    assert (("c", "a"), "b") == (memory.sessions, memory.cure.session)


def test_a_cure_without_any_change_is_told_as_one() -> None:
    """It may come and go."""
    memory = remembered([row("a", seen()), row("b")], KEY)
    assert memory is not None
    assert memory.cure is not None
    assert sentence(memory).endswith("with nothing changed that is on record")


def test_other_targets_devices_and_fewer_variants_cure_nothing() -> None:
    """Nor does a session that never came to the step, or one that was recorded elsewhere."""
    others = [
        row("b", target="u"),
        row("c", device="cuda"),
        row("d", variants=()),
        row("e", steps=()),
        row("f", status="skipped"),
        row("g", recorded=True),
    ]
    memory = remembered([row("a", seen()), *others], KEY)
    assert memory is not None
    assert None is memory.cure


def test_a_variant_is_cured_where_only_others_fail_in_its_step() -> None:
    """The step fails for another variant; this one is right."""
    rows = [row("a", seen("ours")), row("b", seen("theirs", key="1" * 12), variants=("ours", "theirs"))]
    memory = remembered(rows, KEY)
    assert memory is not None
    assert memory.cure is not None
    whole = [rows[0], row("b", seen("", key="1" * 12))]
    still = remembered(whole, KEY)
    assert still is not None
    assert None is still.cure


def test_a_resume_that_got_past_it_is_the_cure() -> None:
    """Of the same session."""
    memory = remembered([row("a", seen(cured_by="a"))], KEY)
    assert memory is not None
    assert memory.cure is not None
    assert "a" == memory.cure.session


def test_what_changed_at_most_cures_is_suspected_first() -> None:
    """A fact that merely happened to change at one cure, the last one at that, comes later."""
    rows = [
        row("a", seen()),
        row("b", environment=place(torch="2.4")),
        row("c", seen(), environment=place(torch="2.4")),
        row("d", environment=place(torch="2.5")),
        row("e", seen(), environment=place(torch="2.5")),
        row("f", environment=place(torch="2.6", compiler="g++ 13"), ground="g2"),
    ]
    memory = remembered(rows, KEY)
    assert memory is not None
    assert ["f", "d", "b"] == [cure.session for cure in memory.cures]
    assert (("torch", 3), ("compiler", 1), ("sources", 1)) == memory.suspects
    said = sentence(memory)
    assert said.endswith("; of 3 cures changed: torch at 3")
