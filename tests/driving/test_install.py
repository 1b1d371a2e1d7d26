"""`loop agents install`: our part of files, and nothing else of them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.cli import app
from loop.driving.install import BEGIN, SKILL_PATHS

FIRST, SECOND = map(str, SKILL_PATHS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a user, with a page for agents of its own."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "AGENTS.md").write_text("# Ours\n\nRun the tests.\n")
    return made


def install(folder: Path, *words: str) -> dict[str, str]:
    """Run the command for programs; what becomes of each file."""
    done = CliRunner().invoke(app, ["agents", "install", str(folder), "--json", *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    told = json.loads(done.stdout)
    assert ("--yes" in words) == told["written"]
    return {file["file"]: file["change"] for file in told["files"]}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written_unasked(folder: Path) -> None:
    """Without `--yes`, and with nobody to ask, it only says what it would do."""
    before = content(folder)
    assert {FIRST: "made", SECOND: "made", "AGENTS.md": "updated"} == install(folder)
    done = CliRunner().invoke(app, ["agents", "install", str(folder)])
    assert (2, True) == (done.exit_code, "--yes" in done.stderr)
    assert before == content(folder)


def test_twice_is_once(folder: Path) -> None:
    """The user's page stays above our section, and names the skill."""
    install(folder, "--yes")
    after = content(folder)
    assert {FIRST, SECOND, "AGENTS.md"} == set(after)
    assert after["AGENTS.md"].startswith(b"# Ours\n\nRun the tests.\n\n" + BEGIN.encode())
    assert f"({FIRST})".encode() in after["AGENTS.md"]
    assert {"unchanged"} == set(install(folder, "--yes").values())
    assert after == content(folder)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (SECOND, b"---\nname: loop\n---\nsomebody else's", "is not loop's"),
        ("AGENTS.md", f"{BEGIN}\nno end\n".encode(), "is gone"),
        ("AGENTS.md", b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_it_does_not_understand_it_does_not_touch(folder: Path, file: str, text: bytes, said: str) -> None:
    """Nothing is written at all, and the file is named."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    before = content(folder)
    with pytest.raises(UsageError, match=said) as caught:
        install(folder, "--yes")
    assert caught.value.hint
    assert before == content(folder)
