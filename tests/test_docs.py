"""Documents that cannot rot: help, examples, schemas and the README are held against the program."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import typer.main
import yaml

from loop.cli import app
from loop.commands.definitions import SCHEMAS, schema_text
from tests.conftest import ROOT


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    """What a command does, and a line to try."""
    text = ALL[words].help or ""
    assert f"loop {' '.join(words)}" in text
    assert "Example" in text


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_readme_names_every_command(words: tuple[str, ...]) -> None:
    """A stranger finds each of them from the README."""
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if f"loop {words[0]}" in line]
    assert [] != [row for row in rows if re.search(rf"\b{words[-1]}\b", row)]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    """No option without a sentence."""
    options = [one for one in ALL[words].params if one.param_type_name == "option" and one.name != "help"]
    assert [] == [option.name for option in options if not option.help]


@pytest.mark.parametrize("name", SCHEMAS)
def test_stored_schemas_are_those_of_the_models(name: str) -> None:
    """`make schema` writes them anew."""
    assert schema_text(name) == (ROOT / "loop" / "schema" / f"{name}.json").read_text()


DEFINITIONS = {
    "pattern": sorted((ROOT / "patterns").glob("*.yaml")),
    "plan": sorted((ROOT / "sessions" / "plans").glob("*.yaml")),
    "target": sorted((ROOT / "kernels").glob("*/target.yaml")),
    "rates": [ROOT / "sessions" / "rates.yaml"],
}
SHIPPED = [(kind, path) for kind, paths in DEFINITIONS.items() for path in paths]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_bundled_definitions_satisfy_the_schema_they_point_at(kind: str, path: Any) -> None:
    """What an editor checks agrees with what the program checks, and the comment leads to the schema."""
    schema = json.loads((ROOT / "loop" / "schema" / f"{kind}.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    data = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    jsonschema.validate(data, schema, cls=jsonschema.Draft7Validator)
    pointer = re.match(r"# yaml-language-server: \$schema=(\S+)", path.read_text())
    assert pointer is not None
    assert (path.parent / pointer[1]).resolve() == ROOT / "loop" / "schema" / f"{kind}.json"


def test_links_in_documents_lead_somewhere() -> None:
    """Every relative link names a file that is there."""
    documents = sorted(ROOT.glob("*.md"))
    links = [(doc, link) for doc in documents for link in re.findall(r"\]\(([^)#:]+)\)", doc.read_text())]
    assert [] == [f"{doc.name}: {link}" for doc, link in links if not (doc.parent / link).exists()]


def test_the_architecture_lists_every_room() -> None:
    """The map has all rooms of the house."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.stem if path.is_file() else f"{path.name}/" for path in (ROOT / "loop").iterdir()}
    unlisted = {room for room in rooms - {"__init__", "__pycache__/", "schema/"} if f"`{room}`" not in text}
    assert set() == unlisted
