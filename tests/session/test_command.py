"""`loop report` in all its formats, and `loop sessions import` of raw rows, once."""

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
from loop.session import closing as reports
from loop.store import journal, sessions
from loop.store.sessions import SessionFolder, list_sessions
from tests.makers import NOON
from tests.projects import loop, make_project
from tests.session.golden_sessions import SESSIONS
from tests.session.golden_steps import WORKLOADS

SAMPLES = "2-measure-1-measure"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user."""
    return make_project(tmp_path / "project")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def make_session(root: Path, name: str, *, samples: bool = True, stored: str = "") -> SessionFolder:
    """One of the golden sessions on disk. `stored`: where its journal says that samples are."""
    golden = SESSIONS[name]()
    folder = sessions.create_session(root, "baseline", NOON)
    head = golden.record.head.model_copy(update={"id": folder.id})
    folder.write_head(head)
    folder.write_record(golden.record.model_copy(update={"head": head}))
    written = journal.Journal(folder.path / journal.NAME)
    for line in golden.lines:
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


def output_of(form: str, project: Path, output: Path | None = None) -> str:
    """Output of the command."""
    out = io.StringIO()
    assert 0 == reports.report("last", form, project, output, Screen(out, io.StringIO()))
    return out.getvalue()


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_every_format_goes_to_stdout_or_into_a_file(form: str, project: Path, root: Path, tmp_path: Path) -> None:
    """Both have the same text."""
    make_session(root, "passed")
    output = tmp_path / f"out.{form}"
    text = output_of(form, project)
    assert "" == output_of(form, project, output)
    assert text.splitlines() == output.read_text().splitlines()


@pytest.mark.parametrize("name", SESSIONS)
def test_json_is_what_its_schema_says(name: str, project: Path, root: Path) -> None:
    """JSON of each kind of session fits its schema."""
    folder = make_session(root, name)
    content = json.loads(output_of("json", project))
    jsonschema.validate(content, json.loads(schema_text("report")), jsonschema.Draft202012Validator)
    assert (3, folder.id) == (content["schema_version"], content["id"])
    assert len(SESSIONS[name]().finished) == len(content["steps"])


def test_what_cannot_be_written_is_said(project: Path, root: Path, tmp_path: Path) -> None:
    """A folder, a path below a file, a record: it would be lost."""
    record = make_session(root, "passed").path / "record.json"
    with pytest.raises(LoopError, match=r"record\.json: is a file of a session"):
        output_of("md", project, record)
    with pytest.raises(LoopError, match="is a folder") as error:
        output_of("md", project, tmp_path)
    assert "--output" in (error.value.hint or "")
    (tmp_path / "file").touch()
    with pytest.raises(LoopError, match="cannot be written"):
        output_of("html", project, tmp_path / "file" / "report.html")


MINE = """
format: 1
source: my own notes
sessions:
  - {id: first, minutes: 30, gpu_usd: 0.5, outcome: a baseline}
  - {id: Second, minutes: 10, outcome: failure}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A history file of a user."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    return path


def test_the_shipped_history_becomes_sessions_marked_as_recorded(tmp_path: Path) -> None:
    """They are in order, with their costs. Readers of loop's own sessions leave them out."""
    done = loop("sessions", "import", "history", "--json")
    assert 0 == done.returncode, done.stderr
    reply = json.loads(done.stdout)
    assert (9, [], 1) == (len(reply["imported"]), reply["already"], reply["schema_version"])
    rows = json.loads(loop("sessions", "list", "--json").stdout)["sessions"]
    assert ["recorded"] * 9 == [row["status"] for row in rows]
    assert [(10800.0, 3.6), (1800.0, 26.4)] == [
        (row["seconds"], round(row["usd"], 2)) for row in (rows[0], rows[-1])
    ]
    assert [] == list_sessions(tmp_path / "sessions")
    listed = sessions.rows(tmp_path / "sessions")
    assert {None} == {row.started for row in listed}


def test_a_second_import_changes_nothing(mine: Path, tmp_path: Path) -> None:
    """An import of the same rows from an edited file changes nothing either."""
    assert 0 == loop("sessions", "import", str(mine)).returncode
    before = {path: path.read_bytes() for path in (tmp_path / "sessions").rglob("*.json")}
    mine.write_text(f"# a comment\n{MINE}")
    done = loop("sessions", "import", str(mine))
    assert (0, True) == (done.returncode, "0 sessions imported, 2 were there" in done.stderr), done.stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "sessions").rglob("*.json")}


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("minutes: 30", "minutes: -1", ":5:26: sessions.0.minutes: expected"),
        ("minutes: 30", "minutes: soon", ":5:26: sessions.0.minutes: expected"),
        ("id: Second", "id: first", "expected ids that differ"),
        ("id: Second", "id: ../../etc", ":6:10: sessions.1.id: expected"),
        ("format: 1", "format: 2", ":2:9: format: expected"),
        ("sessions:", "sessions: []\nother:", "expected"),
    ],
)
def test_a_bad_history_is_refused_with_its_place(
    mine: Path, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    """The message has file, line and column; nothing is imported."""
    mine.write_text(MINE.replace(old, new))
    done = loop("sessions", "import", str(mine))
    assert 2 == done.returncode, done.stderr
    assert complaint in done.stderr
    assert "mine.yaml:" in done.stderr
    assert not (tmp_path / "sessions").exists()
