"""The reference is what the code says."""

import re
from pathlib import Path

import pytest

from loop.actions import ACTIONS
from tests.docs import reference

PAGES = reference.pages()


def test_the_reference_is_written_as_a_folder_of_pages(tmp_path: Path) -> None:
    """A page of an earlier run that nothing generates any more goes."""
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "old.md").write_text("")
    assert list(PAGES) == reference.write(folder, PAGES)
    assert PAGES == {path.name: path.read_text() for path in folder.iterdir()}


def test_every_action_is_explained() -> None:
    """With what it takes and what it finds."""
    text = PAGES["actions.md"]
    assert [] == [name for name in ACTIONS if f"\n## {name}\n" not in text]


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_whole(name: str) -> None:
    """Every row has as many cells as its head: nothing in a cell ends it."""
    heads = 0
    for line in PAGES[name].splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert cells in (0, heads) or not heads, line
        heads = cells


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_headings(name: str) -> None:
    """As GitHub names them."""
    text = PAGES[name]
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    known = {re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set() == set(re.findall(r"\]\(#([^)]+)\)", text)) - known
