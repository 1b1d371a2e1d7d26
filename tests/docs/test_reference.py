"""The reference is what the code says."""

import re

import pytest

from loop.actions import ACTIONS
from tests.docs import reference

PAGES = reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_current(name: str) -> None:
    """`make docs` writes it anew."""
    assert PAGES[name] == (reference.FOLDER / name).read_text(), "make docs"


def test_nothing_is_left_over() -> None:
    """A page that nothing generates would rot."""
    assert set(PAGES) == {path.name for path in reference.FOLDER.glob("*")}


def test_every_action_is_explained() -> None:
    """With what it takes and what it finds; no field without a sentence."""
    text = PAGES["actions.md"]
    assert [] == [name for name in ACTIONS if f"\n## {name}\n" not in text]
    assert [] == re.findall(r"^\| `\w+` \| .* \|  \|$", text, re.MULTILINE)


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
