"""`loop report` in all its formats: to stdout, into files, from sessions with pieces missing."""

import io
import json
from pathlib import Path

import jsonschema
import pytest

from loop.base.errors import LoopError
from loop.cli.patterns import schema_text
from loop.model.measurement import Segment
from loop.model.record import Finished
from loop.report.screen import Screen
from loop.session import command as reports
from loop.store import journal, sessions
from loop.store.sessions import SessionFolder
from tests.makers import NOON
from tests.projects import make_project
from tests.session.golden_sessions import SESSIONS
from tests.session.golden_steps import WORKLOADS

SAMPLES = "2-measure-1-measure"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of somebody's own."""
    return make_project(tmp_path / "project")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Its sessions."""
    return tmp_path / "sessions"


def make_session(root: Path, name: str, *, samples: bool = True, stored: str = "") -> SessionFolder:
    """One of the golden sessions on disk. `stored`: where its journal says that samples are."""
    made = SESSIONS[name]()
    folder = sessions.create_session(root, "baseline", NOON)
    head = made.record.head.model_copy(update={"id": folder.id})
    folder.write_head(head)
    folder.write_record(made.record.model_copy(update={"head": head}))
    written = journal.Journal(folder.path / journal.NAME)
    for line in made.lines:
        moved = stored and isinstance(line.event, Finished) and line.event.artifacts
        written.append(line.event.model_copy(update={"artifacts": (stored,)}) if moved else line.event)
    written.close()
    if samples:
        sides = [("baseline", (3e-6, 3.1e-6)), ("cpu", (2e-6, 2.1e-6))]
        folder.write_samples(
            SAMPLES,
            [
                Segment(side=side, workload=workload, round=number, calls=1, seconds=seconds)
                for number in range(3)
                for workload in WORKLOADS
                for side, seconds in sides
            ],
        )
    return folder


def told(form: str, project: Path, output: Path | None = None) -> str:
    """What the command prints."""
    out = io.StringIO()
    assert 0 == reports.report("last", form, project, output, Screen(out, io.StringIO()))
    return out.getvalue()


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_every_format_goes_to_stdout_or_into_a_file(form: str, project: Path, root: Path, tmp_path: Path) -> None:
    """The same text."""
    make_session(root, "passed")
    output = tmp_path / f"out.{form}"
    text = told(form, project)
    assert "" == told(form, project, output)
    assert text.splitlines() == output.read_text().splitlines()


@pytest.mark.parametrize("name", SESSIONS)
def test_json_is_what_its_schema_says(name: str, project: Path, root: Path) -> None:
    """Of sessions of every kind."""
    folder = make_session(root, name)
    content = json.loads(told("json", project))
    jsonschema.validate(content, json.loads(schema_text("report")), jsonschema.Draft202012Validator)
    assert (3, folder.id) == (content["schema_version"], content["id"])
    assert len(SESSIONS[name]().finished) == len(content["steps"])


def test_what_cannot_be_written_is_said(project: Path, root: Path, tmp_path: Path) -> None:
    """A folder, a path below a file."""
    make_session(root, "passed")
    with pytest.raises(LoopError, match="is a folder") as error:
        told("md", project, tmp_path)
    assert "--output" in (error.value.hint or "")
    (tmp_path / "file").touch()
    with pytest.raises(LoopError, match="cannot be written"):
        told("html", project, tmp_path / "file" / "report.html")
