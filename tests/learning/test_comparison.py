"""What may be said of several sessions together, and what may not."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from loop.learning.comparison import ComparedSession, SessionComparison, compare
from loop.model.verdict import Verdict
from tests.makers import NOON

FACTS = {"machine": "bench", "processor": "Some CPU", "threads": "8", "torch": "2.4.0", "GPU": "not used"}


def judged(ratio: float | None = 1.5, word: str = "faster", width: float = 0.05) -> Verdict:
    """A verdict whose interval reaches `width` to either side."""
    ends = None if ratio is None else (ratio - width, ratio + width)
    about = {"variant": "ours", "workload": "w", "against": "baseline", "reason": "a reason"}
    read: TypeAdapter[Verdict] = TypeAdapter(Verdict)
    return read.validate_python({**about, "verdict": word, "ratio": ratio, "interval": ends})


def seen(
    name: str = "a", *cells: Verdict, facts: dict[str, str | None] | None = None, **fields: Any
) -> ComparedSession:
    """A session that judged one variant on workloads w0, w1 ..."""
    base: dict[str, Any] = {"id": name, "started": NOON, "status": "passed", "target": "t", "device": "cpu"}
    told = {"baseline": "lib", "sets": ("small",), "facts": {**FACTS, **(facts or {})}}
    verdicts = {"ours": {f"w{place}": cell for place, cell in enumerate(cells or (judged(),))}}
    return ComparedSession.model_validate({**base, **told, "verdicts": verdicts, **fields})


def refused(found: SessionComparison, word: str) -> list[str]:
    """What is said of one kind of figures."""
    return [line for line in found.refused if line.startswith(word)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"target": "u"}, "another target"),
        ({"device": "cuda"}, "another device"),
        ({"baseline": "other"}, "another baseline"),
        ({"status": "open"}, "it has not ended"),
    ],
)
def test_what_cannot_stand_beside_the_first_is_left_out_by_name(fields: dict[str, Any], reason: str) -> None:
    """The others are compared all the same."""
    found = compare([seen("a"), seen("b", **fields), seen("c", judged(3.0))])
    (said,) = refused(found, "ratios of b")
    assert reason in said
    assert [1.5, None, 3.0] == [cell and cell.ratio for cell in found.rows[0].cells]
    assert (2.0, "higher") == (found.rows[0].change, found.rows[0].moved)


@pytest.mark.parametrize(
    ("first", "last", "moved"),
    [
        (judged(1.5), judged(1.7), "higher"),
        (judged(1.7), judged(1.5), "lower"),
        (judged(1.5), judged(1.58), "within"),
        (judged(1.5), judged(None, "incorrect"), None),
        (judged(1.5), judged(1.5, width=1.4), None),
    ],
)
def test_a_ratio_moved_where_the_intervals_do_not_meet(first: Verdict, last: Verdict, moved: str | None) -> None:
    """What is wrong has no speed, and an interval that says nothing is compared with none."""
    assert moved == compare([seen("a", first), seen("b", last)]).rows[0].moved
