"""Comparisons of sessions."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from loop.learning.comparison import ComparedSession, SessionComparison, compare, sections
from loop.model.measurement import Verdict

FACTS = {"machine": "bench", "processor": "Some CPU", "threads": "8", "torch": "2.4.0", "GPU": "not used"}


def verdict(ratio: float | None = 1.5, word: str = "faster", width: float = 0.05) -> Verdict:
    """A verdict whose interval reaches `width` to either side."""
    ends = None if ratio is None else (ratio - width, ratio + width)
    about = {"variant": "ours", "workload": "w", "against": "baseline", "reason": "a reason"}
    read: TypeAdapter[Verdict] = TypeAdapter(Verdict)
    return read.validate_python({**about, "verdict": word, "ratio": ratio, "interval": ends})


def session(
    name: str = "a", *cells: Verdict, facts: dict[str, str | None] | None = None, **fields: Any
) -> ComparedSession:
    """A session that judged one variant on workloads w0, w1 ..."""
    base: dict[str, Any] = {
        "id": name,
        "status": "passed",
        "target": "t",
        "device": "cpu",
        "files": {},
        "ground": name,
    }
    conditions = {"baseline": "lib", "facts": {**FACTS, **(facts or {})}}
    verdicts = {"ours": {f"w{place}": cell for place, cell in enumerate(cells or (verdict(),))}}
    return ComparedSession.model_validate({**base, **conditions, "verdicts": verdicts, **fields})


def test_files_that_differ_are_named() -> None:
    """Uncommitted files count; a session without recorded files is named."""
    same, edited = {"a.cpp": "1", "t.yaml": "2"}, {"a.cpp": "3", "t.yaml": "2", "new.h": "4"}
    for files, expected in (
        ((same, same), "the files of the target are the same"),
        ((same, edited), "they differ in a.cpp, new.h"),
        ((same, {}), "the files of B were not recorded"),
    ):
        comparison = compare([session(name, files=hashes) for name, hashes in zip("ab", files, strict=True)])
        assert [(expected,)] == [section.lines for section in sections(comparison) if section.title == "Sources"]


def test_what_was_measured_is_compared_with_its_kept_changes() -> None:
    """A session with a kept edit is compared by the files after the edit."""
    start = session("a", files={"a.cpp": "1"}, ground="start")
    edited = session("b", files={"a.cpp": "edited"}, ground="edited")
    merged = session("c", files={"a.cpp": "3"}, ground="edited")
    assert ("a.cpp",) == compare([start, edited]).changed_files
    assert () == compare([edited, merged]).changed_files


def refusals(comparison: SessionComparison, word: str) -> list[str]:
    """Refusals to compare one kind of figures."""
    return [line for line in comparison.refused if line.startswith(word)]


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
    comparison = compare([session("a"), session("b", **fields), session("c", verdict(3.0))])
    (refusal,) = refusals(comparison, "ratios of b")
    assert reason in refusal
    assert [1.5, None, 3.0] == [cell and cell.ratio for cell in comparison.rows[0].cells]
    assert (2.0, "higher") == (comparison.rows[0].change, comparison.rows[0].moved)


@pytest.mark.parametrize(
    ("first", "last", "moved"),
    [
        (verdict(1.5), verdict(1.7), "higher"),
        (verdict(1.7), verdict(1.5), "lower"),
        (verdict(1.5), verdict(1.58), "within"),
        (verdict(1.5), verdict(None, "incorrect"), None),
        (verdict(1.5), verdict(1.5, width=1.4), None),
    ],
)
def test_a_ratio_moved_where_the_intervals_do_not_meet(first: Verdict, last: Verdict, moved: str | None) -> None:
    """A wrong variant has no ratio, and inconclusive intervals are not compared."""
    assert moved == compare([session("a", first), session("b", last)]).rows[0].moved
