"""Statistics of patterns, and what may be said of several sessions together."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from loop.learning.comparison import ComparedSession, SessionComparison, compare, sections
from loop.learning.prediction import FACTOR_BY_FACT, PatternStatistics, compute_statistics
from loop.model.index import Environment, PatternRun, SessionRow
from loop.model.measurement import Verdict
from tests.makers import NOON, make_pattern, make_row

HERE = ("AMD EPYC", None, None, None, "2.4.1", "g++ 12")
UPGRADED = ("AMD EPYC", None, None, None, "2.5.0", "g++ 12")
ONE = make_pattern("one", estimate={"minutes": 0.5})


def rows(
    good: int = 0, broken: int = 0, seconds: float = 10.0, place: tuple[str | None, ...] = HERE
) -> list[SessionRow]:
    """Sessions with one run of `one` each, all of the same time; those that broke were left half way."""
    environment = Environment(**dict(zip(FACTOR_BY_FACT, place, strict=True)))
    runs = [
        PatternRun(
            pattern="one", status="passed" if n < good else "failed", seconds=seconds, started=NOON, whole=n < good
        )
        for n in range(good + broken)
    ]
    return [make_row(n, environment=environment, runs=(run,)) for n, run in enumerate(runs)]


def one(*some: list[SessionRow]) -> PatternStatistics:
    """The statistics of `one`."""
    return compute_statistics({"one": ONE}, [row for part in some for row in part])["one"]


def test_runs_under_another_torch_count_half() -> None:
    """Six are worth three: no longer validated; three new ones win it back."""
    new = one(rows(6), rows(1, place=UPGRADED))
    assert "applied" == new.status
    assert "4 of 4 runs by weight answered" in new.why
    assert "validated" == one(rows(6), rows(3, place=UPGRADED)).status


@pytest.mark.parametrize(("broken", "least"), [(0, 5), (1, 5), (2, 8), (3, 12), (4, 16)])
def test_a_pattern_is_validated_from_so_many_answers_on(broken: int, least: int) -> None:
    """The table of docs/memory.md, so that it can be checked by hand."""
    assert ["applied", "validated"] == [
        one(rows(count, broken)).status.replace("doubtful", "applied") for count in (least - 1, least)
    ]


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
    base: dict[str, Any] = {
        "id": name,
        "status": "passed",
        "target": "t",
        "device": "cpu",
        "files": {},
        "ground": name,
    }
    told = {"baseline": "lib", "facts": {**FACTS, **(facts or {})}}
    verdicts = {"ours": {f"w{place}": cell for place, cell in enumerate(cells or (judged(),))}}
    return ComparedSession.model_validate({**base, **told, "verdicts": verdicts, **fields})


def test_files_that_differ_are_named() -> None:
    """Also uncommitted ones; of a session that recorded none it is said."""
    same, edited = {"a.cpp": "1", "t.yaml": "2"}, {"a.cpp": "3", "t.yaml": "2", "new.h": "4"}
    for files, expected in (
        ((same, same), "the files of the target are the same"),
        ((same, edited), "they differ in a.cpp, new.h"),
        ((same, {}), "the files of B were not recorded"),
    ):
        found = compare([seen(name, files=hashes) for name, hashes in zip("ab", files, strict=True)])
        assert [(expected,)] == [section.lines for section in sections(found) if section.title == "Sources"]


def test_what_was_measured_is_compared_with_its_kept_changes() -> None:
    """A session that kept an edit measured what a later one has in its checkout, and not what it began with."""
    start = seen("a", files={"a.cpp": "1"}, ground="start")
    kept = seen("b", files={"a.cpp": "edited"}, ground="edited")
    merged = seen("c", files={"a.cpp": "3"}, ground="edited")
    assert ("a.cpp",) == compare([start, kept]).changed_files
    assert () == compare([kept, merged]).changed_files


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
