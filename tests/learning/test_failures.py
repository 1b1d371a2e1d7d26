"""Where a failure was seen before, and what cured it: over plain rows."""

from typing import Any

from loop.learning.failures import describe_earlier_failures
from loop.model.index import Environment, FailureSeen, SessionRow, StepRun
from tests.makers import make_row

KEY = "0" * 12


def seen(subject: str = "", **fields: Any) -> FailureSeen:
    """A failed build."""
    base = {"text": "broken", "key": KEY, "pattern": "unit", "step": "build", "message": "broken"}
    return FailureSeen.model_validate({**base, "subject": subject, **fields})


def row(name: str, *failures: FailureSeen, status: str = "", **fields: Any) -> SessionRow:
    """A session with that step, failed where there are failures."""
    word = status or ("failed" if failures else "passed")
    step = StepRun.model_validate({"pattern": "unit", "step": "build", "status": word, "seconds": 1.0})
    made = {"variants": ("ours",), "environment": place(), "steps": (step,), "failures": failures, "ground": "g1"}
    return make_row(id=name, **{**made, **fields})


def place(**fields: Any) -> Environment:
    """A processor with a compiler and torch."""
    return Environment.model_validate({"processor": "x", "torch": "2.3", "compiler": "g++ 12", **fields})


def test_the_first_later_session_that_got_past_the_step_is_the_cure() -> None:
    """With what had changed: facts of the environment, commits, files."""
    rows = [
        row("a", seen(), commit="c1"),
        row("b", seen(), commit="c1"),
        row("c", environment=place(torch="2.4", cuda="12.4"), commit="c2", ground="g2"),
        row("d"),
    ]
    changes = "nvcc not there -> 12.4; torch 2.3 -> 2.4; other files of the target; commits c1..c2"
    expected = f"seen before: session b (and 1 more); cured in session c by {changes}"
    assert expected == describe_earlier_failures(rows, KEY)


def test_other_targets_devices_and_fewer_variants_cure_nothing() -> None:
    """Nor a session that never came to the step; a variant is cured where only others fail."""
    others = [
        row("b", target="u"),
        row("c", device="cuda"),
        row("d", variants=()),
        row("e", steps=()),
        row("f", status="skipped"),
        row("g", recorded=True),
    ]
    assert describe_earlier_failures([row("a", seen()), *others], KEY).endswith("; no session has got past it yet")
    rows = [row("a", seen("ours")), row("b", seen("theirs", key="1" * 12), variants=("ours", "theirs"))]
    assert "; gone in session b, with nothing changed" in describe_earlier_failures(rows, KEY)
    whole = [rows[0], row("b", seen("", key="1" * 12))]
    assert "no session has got past it yet" in describe_earlier_failures(whole, KEY)
