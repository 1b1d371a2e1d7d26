"""The skill: valid by the format's rules, short, and every line of it can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml

from loop.cli import ALL, app
from loop.driving.install import agents_section, skill_text

TEXT = skill_text()
ALLOWED = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def commands() -> Iterator[str]:
    """Every command in the skill and in the section for AGENTS.md."""
    for text in (TEXT, agents_section(Path("SKILL.md"))):
        for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            yield from (line.strip().rpartition("&& ")[2] for line in block.splitlines())
        yield from (one for one in re.findall(r"`(loop [^`]+)`", text) if "..." not in one)


def test_it_is_valid() -> None:
    """By the rules of the format: known keys, name, lengths; fewer than 500 lines."""
    _, head, body = TEXT.split("---\n", 2)
    fields = yaml.safe_load(head)
    assert set(fields) <= ALLOWED
    assert "loop" == fields["name"]
    assert 0 < len(fields["description"]) <= 1024
    assert 0 < len(fields["compatibility"]) <= 500
    assert all(isinstance(one, str) for one in fields["metadata"].values())
    assert body.strip()
    assert 200 > len(TEXT.splitlines())


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_can_be_typed(line: str) -> None:
    """The program knows its words, options and arguments."""
    words = shlex.split(line)[1:]
    if words[0].isupper():
        return
    known = max((one.words for one in ALL if words[: len(one.words.split())] == one.words.split()), key=len)
    rest = words[len(known.split()) :]
    command = typer.main.get_command(app)
    for word in known.split():
        command = command.get_command(None, word)  # type: ignore[attr-defined]
    command.make_context(known, rest)
