"""The history that ships with loop, and what the catalogue says of it."""

from pathlib import Path

from loop.base.places import find_project
from loop.library import definitions
from loop.session.recorded import read_histories


def test_every_line_of_evidence_names_a_session_of_the_history(tmp_path: Path) -> None:
    """One with rows, or one that its reports mention."""
    (history,) = read_histories()
    known = {*(row.id for row in history.sessions), *history.mentioned}
    patterns = definitions.patterns(find_project(None, tmp_path))
    named = {(name, one.session) for name, read in patterns.items() for one in read.value.evidence}
    assert set() == {(name, session) for name, session in named if session not in known}
    assert {"N+7E", "N+7F", "October 13"} == {session for _, session in named} & set(history.mentioned)
