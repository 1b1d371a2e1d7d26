"""Definitions as YAML text: they read back as they are, whatever text is in them."""

from pathlib import Path

import pytest

from loop.library.definitions import read_file
from loop.library.written import to_yaml
from loop.model.pattern import Pattern
from tests.makers import make_pattern

TEXTS = [
    "plain words",
    "no",
    "1e-3",
    "12:30:45",
    "0x1f",
    "~",
    "a: b # c",
    "- [x, {y}]",
    "*alias &anchor !tag",
    "'quoted' \"twice\"",
    "{{ jinja }} %d",
    "\u00fc\u4e2d\U0001f600",
    "tab\there",
    "line\nline\n",
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a \n+b\n",
    "x" * 500,
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_any_text_reads_back_as_it_was(text: str, tmp_path: Path) -> None:
    """Text that looks like a number, a list or a comment stays text."""
    failure = {"signature": "0" * 12, "text": f"x {text} x", "diff": f"x\n{text}\nx\n"}
    pattern = make_pattern("mine", ("build",), problem=f"a {text} z", failure=failure)
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml(pattern, "A comment"))
    assert pattern == read_file(path, Pattern).value
    assert path.read_text().startswith("# A comment\nformat: 1\nname: mine\n")


def test_what_no_yaml_may_hold_becomes_a_question_mark(tmp_path: Path) -> None:
    """Control characters and byte-order marks, as a hostile error message may have them."""
    path = tmp_path / "mine.yaml"
    path.write_text(to_yaml(make_pattern("mine", ("build",), problem="bell \x07 mark \ufeff end"), "A comment"))
    assert "bell ? mark ? end" == read_file(path, Pattern).value.problem
