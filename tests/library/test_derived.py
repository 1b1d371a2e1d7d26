"""What follows from recorded rows: sums over steps, and figures that cannot all be right."""

from typing import Any

import pytest

from loop.library.derived import contradictions, step_sums
from loop.model.history import RecordedSession


def session(
    stated: dict[str, Any] | None = None, row: dict[str, Any] | None = None, **fields: Any
) -> RecordedSession:
    """A session `a` of 25 minutes, the second of its history, that cost $1.00 of GPU."""
    known = {"id": "a", "minutes": 25, "gpu_usd": 1.0, "outcome": "x", **(row or {})}
    base: dict[str, Any] = {"id": "recorded-1-a", "history": "1", "position": 2, "source": "s", "row": known}
    return RecordedSession.model_validate({**base, "stated": [stated] if stated else [], **fields})


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"from": "01:15", "to": "01:26"}, ["a: 25 min, but 01:15 to 01:26 is 11 min"]),
        ({"from": "23:50", "to": "00:15"}, []),
        ({"from": "soon", "to": "01:26"}, []),
        ({"report": "r", "session": "a", "hours": 2}, ["a: report r counts 2 h, but its row 25 min"]),
        ({"report": "r", "session": "a", "gpu_usd": 1.01, "engineer_usd": 5}, []),
        (
            {"report": "r", "session": "a", "gpu_usd": 1.5},
            ["a: report r counts $1.50 for its gpu, but its row $1.00"],
        ),
        (
            {"report": "r", "through": "a", "sessions": 3},
            ["a: report r counts 3 sessions up to it, but it is number 2"],
        ),
        ({"report": "r", "through": "a", "sessions": 2, "hours": 9}, []),
        ({"report": "r", "sessions": "many", "hours": "few"}, []),
    ],
)
def test_what_a_report_states_beside_the_row(stated: dict[str, Any], said: list[str]) -> None:
    """A clock, hours, dollars, a count; what is no figure, or rounded, contradicts nothing."""
    assert said == [*contradictions(session(stated))]


def test_steps_cannot_take_longer_than_their_session() -> None:
    """26 minutes of 25."""
    assert ("a: its steps took 26.0 min, but the session has 25",) == contradictions(
        session(steps=[{"step": "s", "actual_s": 1560}])
    )
    assert () == contradictions(session(steps=[{"step": "s", "actual_s": 1500}, {"step": "t"}]))


def test_a_speed_up_is_the_geometric_mean_of_its_rows() -> None:
    """Of 0.5 and 0.125: 0.25, and not 0.3125, which is their arithmetic mean."""
    rows = [{"pytorch_ms": 1, "ours_ms": 2}, {"pytorch_ms": 1, "ours_ms": 8}, {"fa1": 0.1}]
    assert () == contradictions(session(row={"speedup": 0.25}, measurements=rows))
    (said,) = contradictions(session(row={"speedup": 0.3125}, measurements=rows))
    assert "a: speed-up 0.3125, but the geometric mean of its 2 rows is 0.25" == said
    assert () == contradictions(session(row={"speedup": 0.3125}))


def test_sums_are_over_steps_that_state_both_times() -> None:
    """One of three: the others lack a target or have no number."""
    rows = [
        {"target_s": 60, "actual_s": 90, "status": "failed"},
        {"actual_s": 5},
        {"target_s": "x", "actual_s": 1},
    ]
    found = step_sums(rows)
    assert found is not None
    assert (1, 60.0, 90.0, 0, 1) == (found.steps, found.target_s, found.actual_s, found.within, found.failed)
    assert "1 steps took 1.5 min of 1.0 planned (150 %); 0 kept to their target, 0 succeeded (0 %)" == found.text
    assert None is step_sums(rows[1:])
