"""Help, examples, schemas and the README are compared with the program."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from loop.actions import ACTIONS
from loop.cli import ALL as DEFINED
from loop.cli import app
from loop.cli.command import FIRST
from loop.cli.patterns import schema_text
from tests.conftest import ROOT
from tests.docs import reference


def walk(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group below a group, with the words that call it."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        yield (*words, name), command
        if hasattr(command, "commands"):
            yield from walk(command, (*words, name))


COMMANDS = ROOT / "docs" / "commands.md"
EVERY = dict(walk(typer.main.get_command(app)))
ALL = {words: command for words, command in EVERY.items() if not hasattr(command, "commands")}


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_command_explains_itself_and_its_options(words: tuple[str, ...]) -> None:
    """A sentence that fits a terminal, a line to try, a sentence for each option, a row on the page."""
    text = (ALL[words].help or "").strip()
    summary, _, rest = text.partition("\n")
    assert summary.endswith(".")
    assert not rest.partition("\n")[0].strip()
    assert 110 >= len(summary)
    assert f"loop {' '.join(words)}" in text
    assert "Example" in text
    options = [param for param in ALL[words].params if param.param_type_name == "option" and param.name != "help"]
    assert [] == [option.name for option in options if not option.help]
    rows = [line for line in COMMANDS.read_text().splitlines() if f"loop {words[0]}" in line]
    assert [] != [row for row in rows if re.search(rf"\b{words[-1]}\b", row)]


def test_the_readme_begins_with_two_commands_and_is_short() -> None:
    """It begins with two commands and is short."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    clone, session, activation = (line.partition("#") for line in blocks[0].splitlines())
    assert ("git clone ADDRESS loop && cd loop", "make session") == (clone[0].strip(), session[0].strip())
    assert "ADDRESS stands for" in clone[2]
    assert ". .venv/bin/activate" == activation[0].strip()
    assert text.index("`make test`") < text.index("docs/pictures/")
    assert 120 > len(text.splitlines())


def test_help_of_all_fits_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns, 24 lines with the prompt: the commands that matter first, a line each, then all names."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    assert 23 >= len(lines)
    assert 10 == len(FIRST) == len([line for line in lines if line.strip().startswith(FIRST)])
    names = {command.partition(" ")[0] for command in (" ".join(words) for words in ALL)}
    assert names <= set(" ".join(lines).replace(",", " ").split())


def test_commands_and_options_are_few() -> None:
    """A new command or option replaces another one."""
    assert 45 >= len(DEFINED)
    assert 20 >= max(len(command.parameters) for command in DEFINED if command.words == "run session")


@pytest.mark.slow
def test_help_fits_the_terminal_and_has_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help of each command and group fits 80 columns, and names no type of Python."""
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((), *EVERY):
        done = CliRunner().invoke(app, [*words, "-h"])
        assert 0 == done.exit_code, words
        assert [] == re.findall(r"\x1b|<[\w ]+>|.*\bstr\b.*|.*list\[.*|.*None.*", done.output), words
        assert [] == [line for line in done.output.splitlines() if len(line) > 80], words


DEFINITIONS = {
    "pattern": sorted((ROOT / "patterns").glob("*.yaml")),
    "plan": sorted((ROOT / "sessions" / "plans").glob("*.yaml")),
    "target": sorted((ROOT / "kernels").glob("*/target.yaml")),
    "rates": [ROOT / "sessions" / "rates.yaml"],
}
SHIPPED = [(kind, path) for kind, paths in DEFINITIONS.items() for path in paths]


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_bundled_definitions_satisfy_the_schema_they_point_at(kind: str, path: Any) -> None:
    """Editor and program check the same, and the comment in each file names its schema."""
    schema = json.loads(schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    data = json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str))
    jsonschema.validate(data, schema, cls=jsonschema.Draft202012Validator)
    pointer = re.match(r"# yaml-language-server: \$schema=(\S+)", path.read_text())
    assert pointer is not None
    assert (path.parent / pointer[1]).resolve() == ROOT / "loop" / "schema" / f"{kind}.json"


def test_links_in_documents_lead_somewhere() -> None:
    """Every relative link names a file that is there."""
    documents = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    texts = {doc: re.sub(r"^(`{3,}).*?^\1$", "", doc.read_text(), flags=re.M | re.DOTALL) for doc in documents}
    links = [(doc, link) for doc, text in texts.items() for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert links
    assert [] == [f"{doc.name}: {link}" for doc, link in links if not (doc.parent / link).exists()]


def test_the_architecture_names_files_that_are_there() -> None:
    """Each file that the page names; tests/test_layers.py holds the table against the rooms."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`(\w+/\w+(?:\.py)?)`", text)
    assert named
    places = (ROOT / "loop", ROOT)
    assert [] == [name for name in named if not any((place / name).exists() for place in places)]


PAGES = reference.pages()


def test_the_reference_is_written_as_a_folder_of_pages(tmp_path: Path) -> None:
    """Pages of an earlier run that are no longer generated are removed."""
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "old.md").write_text("")
    assert list(PAGES) == reference.write(folder, PAGES)
    assert PAGES == {path.name: path.read_text() for path in folder.iterdir()}


def test_every_action_is_explained() -> None:
    """Each action has its arguments and its output."""
    text = PAGES["actions.md"]
    assert [] == [name for name in ACTIONS if f"\n## {name}\n" not in text]


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_whole_and_links_lead_to_headings(name: str) -> None:
    """Each row has as many cells as its head; headings have GitHub's anchors."""
    heads = 0
    for line in PAGES[name].splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert cells in (0, heads) or not heads, line
        heads = cells
    text = PAGES[name]
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set() == set(re.findall(r"\]\(#([^)]+)\)", text)) - anchors
