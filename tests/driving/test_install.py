"""The skill is valid and can be typed; `loop agents install` writes our part of files alone."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.cli import ALL, app
from loop.driving.install import BEGIN, SKILL_PATHS, TEMPLATES, skill_text

FIRST, SECOND = map(str, SKILL_PATHS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a user, with a page for agents of its own."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("# Ours\n\nRun the tests.\n")
    return project


def install(folder: Path, *words: str) -> dict[str, str]:
    """Run the command, and return the change of each file."""
    result = CliRunner().invoke(app, ["agents", "install", str(folder), "--json", *words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    reply = json.loads(result.stdout)
    assert ("--yes" in words) == reply["written"]
    return {file["file"]: file["change"] for file in reply["files"]}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written_unasked(folder: Path) -> None:
    """Without `--yes` and without a terminal, it only lists what it would write."""
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
    ("file", "text", "message"),
    [
        (SECOND, b"---\nname: loop\n---\nsomebody else's", "is not loop's"),
        ("AGENTS.md", f"{BEGIN}\nno end\n".encode(), "is gone"),
        ("AGENTS.md", b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_it_does_not_understand_it_does_not_touch(folder: Path, file: str, text: bytes, message: str) -> None:
    """No file is written, and the message names the file."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    unchanged = content(folder)
    with pytest.raises(UsageError, match=message) as caught:
        install(folder, "--yes")
    assert caught.value.hint
    assert unchanged == content(folder)


TEXT = skill_text()
ALLOWED = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def commands() -> Iterator[str]:
    """Every command in the skill and in the section for AGENTS.md."""
    for text in (TEXT, TEMPLATES.get_template("AGENTS.md.j2").render(skill="SKILL.md")):
        for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            yield from (line.strip().rpartition("&& ")[2] for line in block.splitlines())
        yield from (command for command in re.findall(r"`(loop [^`]+)`", text) if "..." not in command)


def test_it_is_valid() -> None:
    """By the rules of the format: known keys, name, lengths; fewer than 500 lines."""
    _, head, body = TEXT.split("---\n", 2)
    fields = yaml.safe_load(head)
    assert set(fields) <= ALLOWED
    assert "loop" == fields["name"]
    assert 0 < len(fields["description"]) <= 1024
    assert 0 < len(fields["compatibility"]) <= 500
    assert all(isinstance(value, str) for value in fields["metadata"].values())
    assert body.strip()
    assert 200 > len(TEXT.splitlines())


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_can_be_typed(line: str) -> None:
    """The program knows its words, options and arguments."""
    words = shlex.split(line)[1:]
    if words[0].isupper():
        return
    name = max((row.words for row in ALL if words[: len(row.words.split())] == row.words.split()), key=len)
    rest = words[len(name.split()) :]
    command = typer.main.get_command(app)
    for word in name.split():
        command = command.get_command(None, word)  # type: ignore[attr-defined]
    command.make_context(name, rest)
