"""A session from elsewhere runs only commands that its user allowed or that trusted definitions name."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from loop.base.documents.sums import split_checksum, with_checksum
from loop.library import trust
from loop.model.record import SessionHead
from tests.projects import loop

STORED = Path(__file__).with_name("stored")
KILLED = "2026-11-23-012300-try"


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an open session that another user began, of a trusted target."""
    shutil.copytree(STORED / "project", tmp_path / "project")
    shutil.copytree(STORED / "sessions", tmp_path / "sessions", dirs_exist_ok=True)
    (tmp_path / "project" / "go").touch()
    monkeypatch.chdir(tmp_path / "project")
    assert 0 == loop("trust", ".").returncode
    return tmp_path / "sessions" / KILLED


def read(folder: Path) -> Any:
    """The head of a session."""
    return json.loads(split_checksum((folder / "session.json").read_bytes())[0])


def write(folder: Path, head: Any) -> None:
    """Store a head as loop does: its checksum holds, for it has no key."""
    (folder / "session.json").write_text(with_checksum(json.dumps(head)))


def with_command(folder: Path, command: str) -> None:
    """Have the last step of a stored session run another command than the definitions."""
    head = read(folder)
    head["plan"]["patterns"][0]["pattern"]["steps"][2]["with"] = {"run": command}
    write(folder, head)


@pytest.mark.slow
def test_another_command_is_refused_until_that_session_is_allowed(foreign: Path) -> None:
    """It is named with its step; `loop trust` shows and allows these commands, and no others later."""
    with_command(foreign, "touch theirs")
    refused = loop("run", "session", "--resume", KILLED)
    assert 2 == refused.returncode
    assert "the definitions do not run: pattern try, step s3: touch theirs" in refused.stderr
    assert f"`loop trust {foreign}`" in refused.stderr
    assert not Path("theirs").exists()
    assert "pattern try, step s3: touch theirs" in loop("trust", str(foreign)).stdout
    with_command(foreign, "touch others")
    assert 2 == loop("run", "session", "--resume", KILLED).returncode
    with_command(foreign, "touch theirs")
    assert 0 == loop("run", "session", "--resume", KILLED).returncode
    assert (True, False) == (Path("theirs").exists(), Path("others").exists())


def head_with(step: dict[str, Any] | None = None, campaign: dict[str, Any] | None = None) -> SessionHead:
    """The stored session's head with another last step, or another campaign."""
    head = read(STORED / "sessions" / KILLED) | {"campaign": campaign or {}}
    head["plan"]["patterns"][0]["pattern"]["steps"][2] |= step or {}
    return SessionHead.model_validate_json(json.dumps(head), extra="ignore")


NAMED = [planned.pattern for planned in head_with().plan.patterns]


@pytest.mark.parametrize(
    ("changed", "command"),
    [
        ({"campaign": {"proposer": "touch x", "env": ["TOKEN"]}}, "proposer: touch x, which sees TOKEN"),
        ({"campaign": {"proposer": "claude"}}, "proposer: claude"),
        ({"step": {"with": {"run": "make", "environment": {"CC": "x"}}}}, "pattern try, step s3: CC=x make"),
    ],
)
def test_every_program_of_a_session_is_the_users_own(changed: Any, command: str, tmp_path: Path) -> None:
    """Proposers and commands: refused until this session is begun or allowed here, then known."""
    head = head_with(**changed)
    assert [command] == trust.untrusted_commands(tmp_path, head, NAMED)
    trust.grant_session(tmp_path, head)
    assert [] == trust.untrusted_commands(tmp_path, head, NAMED)
    assert [] == trust.untrusted_commands(tmp_path, head, ()), "its definitions have changed since"
    assert [command] == trust.untrusted_commands(tmp_path / "another", head, NAMED)


@pytest.mark.parametrize("proposer", ["person", "tuner"])
def test_a_session_of_another_machine_goes_on_where_the_definitions_name_its_commands(
    proposer: str, tmp_path: Path
) -> None:
    """Sessions with a person or the tuner as proposer run no foreign program."""
    assert [] == trust.untrusted_commands(tmp_path, head_with(campaign={"proposer": proposer}), NAMED)


@pytest.mark.slow
def test_another_command_is_allowed_here_before_it_goes_to_another_machine(foreign: Path, tmp_path: Path) -> None:
    """On the other machine it counts as allowed by this user."""
    (tmp_path / ".config" / "loop").mkdir(parents=True)
    (tmp_path / ".config" / "loop" / "hosts.yaml").write_text("format: 1\nhosts: {l4: {ssh: nowhere.invalid}}\n")
    with_command(foreign, "touch theirs")
    words = ("run", "session", "--resume", KILLED, "--on", "l4")
    refused = loop(*words)
    assert 2 == refused.returncode
    assert f"`loop trust {foreign}`" in refused.stderr
    assert 0 == loop("trust", str(foreign)).returncode
    assert "loop trust" not in loop(*words).stderr
