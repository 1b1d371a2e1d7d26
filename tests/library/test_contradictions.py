"""Where a history's reports contradict its rows: to the cent and the minute."""

from typing import Any

import pytest

from loop.library import figures
from loop.library.contradictions import contradictions
from loop.model.history import History


def history(**fields: Any) -> History:
    """One session of an hour, at the history's rates."""
    row = {"id": "A", "minutes": 60.0, "gpu_usd": 0.20, "ai_usd": 0.80, "engineer_usd": 50.0, "outcome": "good"}
    rates = {"gpu_usd_per_hour": 0.20, "ai_usd_per_hour": 0.80, "engineer_usd_per_hour": 50.0}
    row |= fields.pop("row", {})
    base = {"format": 1, "source": "a test", "rates_stated": rates, "sessions": (row,)}
    return History.model_validate({**base, **fields})


def said(one: History) -> list[tuple[str, str]]:
    """Stated and derived."""
    return [(found.stated, found.derived) for found in contradictions(one)]


def test_an_hour_at_the_stated_rates_contradicts_nothing() -> None:
    """60 min are 0.20 and 0.80 dollars; a cent is rounding."""
    assert [] == said(history())
    assert [] == said(history(row={"gpu_usd": 0.21}))
    assert [] == said(history(row={"gpu_usd": None, "ai_usd": None, "engineer_usd": None}))


def test_a_cost_of_other_hours_than_its_minutes_is_shown_with_those_hours() -> None:
    """A GPU that was held for seven hours, in a session of half an hour."""
    found = history(row={"minutes": 30.0, "gpu_usd": 1.40, "ai_usd": None, "engineer_usd": 25.0})
    assert [("GPU $1.40 for 30 min", "30 min at $0.20/h are $0.10; $1.40 are 7 h")] == said(found)


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({"row": {"environment": {"how": "by hand", "minutes": 61.0}}}, "the environment took 61 min"),
        ({"debugging_build_minutes": {"A": 90.0}}, "the build took 90 min"),
        ({"time_to_baseline_minutes": {"A": 70.0}}, "the way to a baseline took 70 min"),
        (
            {"steps": {"A": [{"step": "a", "actual_s": 1800}, {"step": "b", "actual_s": 1860}]}},
            "its steps took 61 min",
        ),
    ],
)
def test_a_part_that_took_longer_than_the_whole_is_shown(fields: dict[str, Any], stated: str) -> None:
    """Each part by itself; they may overlap."""
    assert [(stated, "the session took 60 min")] == said(history(**fields))


def test_a_speed_up_is_held_against_the_geometric_mean_of_its_rows() -> None:
    """An arithmetic mean of ratios is named as such."""
    rows = {"A": [{"pytorch_ms": 1.0, "ours_ms": 1.0}, {"pytorch_ms": 1.0, "ours_ms": 16.0}]}
    assert [] == said(history(measurements=rows, row={"speedup": 0.25}))
    ((stated, derived),) = said(history(measurements=rows, row={"speedup": 0.53}))
    assert ("speed-up 0.53 (their arithmetic mean)", "the geometric mean of its 2 rows is 0.25") == (
        stated,
        derived,
    )


def test_sums_and_single_figures_are_held_against_the_rows() -> None:
    """As many digits count as were stated."""
    sums = {"report": "R", "through": "A", "sessions": 2, "hours": 1.2, "gpu_usd": 0.5, "ai_usd": 0.8}
    once = {"report": "R", "session": "A", "hours": 1, "gpu_usd": 0.4}
    assert [
        ("report R: 2 sessions in all", "the 1 rows up to it: 1 sessions"),
        ("report R: 1.2 h in all", "the 1 rows up to it: 1.0 h"),
        ("report R: GPU $0.50 in all", "the 1 rows up to it: $0.20"),
        ("report R: GPU $0.40", "its row: $0.20"),
    ] == said(history(stated=(sums, once)))


def test_the_shipped_history_contradicts_itself_where_it_is_known_to() -> None:
    """Hours reserved, sums of sessions that have no rows, and a mean that is none."""
    (shipped,) = figures.histories()
    found = {(one.session, one.stated): one.derived for one in contradictions(shipped)}
    assert "30 min at $0.20/h are $0.10; $1.40 are 7 h" == found["N+7G", "GPU $1.40 for 30 min"]
    assert "its row: $0.37" == found["N+2", "report N+2: GPU $0.40"]
    assert "the 9 rows up to it: 9 sessions" == found["N+7G", "report N+7G: 12 sessions in all"]
    assert "the 9 rows up to it: 12.7 h" == found["N+7G", "report N+7G: 25.3 h in all"]
    assert "the 9 rows up to it: $3.84" == found["N+7G", "report N+7G: GPU $18.10 in all"]
    engineer = found["N+7G", "report N+7G: engineer $1264.17 in all"]
    assert "the 9 rows up to it: $25.00 (8 of them state none)" == engineer
    assert "the geometric mean of its 6 rows is 0.0493" == found["N+2", "speed-up 0.1 (their arithmetic mean)"]
    assert not [stated for session, stated in found if session in ("N+1", "N+4")]
