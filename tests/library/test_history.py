"""The history that ships with loop, and what the catalogue says of it."""

from pathlib import Path

from loop.base.places import project
from loop.library import definitions
from loop.library.histories import BY_PATTERN, histories


def test_every_line_of_evidence_names_a_session_of_the_history(tmp_path: Path) -> None:
    """One with rows, or one that its reports mention."""
    (history,) = histories()
    known = {*(row.id for row in history.sessions), *history.mentioned}
    patterns = definitions.patterns(project(None, tmp_path))
    named = {(name, one.session) for name, read in patterns.items() for one in read.value.evidence}
    assert set() == {(name, session) for name, session in named if session not in known}
    assert {"N+7E", "N+7F", "October 13"} == {session for _, session in named} & set(history.mentioned)


def test_patterns_that_a_recorded_session_applied_are_those_of_its_report(tmp_path: Path) -> None:
    """What it names by number, each decision to keep a GPU, and nothing that is no pattern."""
    (history,) = histories()
    patterns = definitions.patterns(project(None, tmp_path))
    names = {read.value.number: name for name, read in patterns.items()}
    rows = {row.id: row for row in history.sessions}
    assert set() == {name for row in rows.values() for name in row.applied} - {*patterns}
    for row in rows.values():
        said = f"{row.environment.how if row.environment else ''} {row.build or ''}"
        assert {names[int(number)] for number in BY_PATTERN.findall(said)} <= {*row.applied}
    kept = {one["id"] for one in history.decisions if one.get("decided") == "keep"}
    assert kept == {row.id for row in rows.values() if "keep-gpu-running" in row.applied}
