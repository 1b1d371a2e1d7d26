"""Golden reports: reports of every kind of session. `LOOP_GOLDEN=write` stores them again; read the diff."""

import os
import re
from pathlib import Path

import pytest

from loop.base.places import shipped
from loop.report.figures import Figure
from loop.report.html import render_page
from loop.session.page import View, render_session
from tests.session.golden_sessions import SESSIONS

GOLDEN = Path(__file__).parent / "golden"
WRITING = os.environ.get("LOOP_GOLDEN") == "write"


def rendered(name: str) -> tuple[str, tuple[Figure, ...]]:
    """The report of one of the sessions."""
    golden = SESSIONS[name]()
    view = View(golden.record, golden.finished)
    return render_session(shipped("templates"), view)


def held_against(path: Path, text: str) -> None:
    """Compare a text with the stored file; with `LOOP_GOLDEN=write`, store it instead."""
    if WRITING:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs: LOOP_GOLDEN=write pytest tests/session/test_golden.py"


def without_inlined(text: str) -> str:
    """A page without its inlined style and script, and without their digests."""
    text = re.sub(r"(<(style|script)>).*?(</\2>)", r"\1\3", text, flags=re.DOTALL)
    return re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", text)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_report_is_what_it_was(name: str) -> None:
    """It is the same word for word, on every machine."""
    held_against(GOLDEN / name / "report.md", rendered(name)[0])


@pytest.mark.parametrize("name", SESSIONS)
def test_figures_are_what_they_were(name: str) -> None:
    """Byte for byte; and no stored figure is left over."""
    figures = rendered(name)[1]
    for figure in figures:
        held_against(GOLDEN / name / figure.path, figure.file)
    assert {Path(plot.path).name for plot in figures} == {p.name for p in (GOLDEN / name / "figures").glob("*")}


@pytest.mark.parametrize("name", ["incorrect", "gpu"])
def test_a_page_is_what_it_was(name: str) -> None:
    """The pages are of a failed session, and of one with every section."""
    parts = rendered(name)
    status = SESSIONS[name]().record.status
    whole = render_page(shipped("templates"), *parts, status)
    held_against(GOLDEN / name / "report.html", without_inlined(whole))
