"""Generated YAML: nothing leaks a traceback, and what was written is read."""

import os
import random
import re
from typing import Any

import pytest

from loop.base.documents import load_yaml
from loop.base.errors import DefinitionError

ROUNDS = int(os.environ.get("LOOP_FUZZ", "300"))
PIECES = [
    *"[]{},:#&*!|>'\"%@`-?\n\t ",
    *(
        ": ",
        "- ",
        "? ",
        "\n  ",
        "\n    ",
        "\r\n",
        "---\n",
        "...\n",
        "<<: ",
        "&a ",
        "*a ",
        "!!str ",
        "|+2\n",
        ">-\n",
    ),
    *("a", "b: 1", "key:\n", "no", "true", "~", "1e-3", "0x", "0o7", "1e999", ".inf", "12:30:45", "\\", '"\\x'),
    *("\x00", "\x85", "\u2028", "\ufeff", "é", "😀", "\ud800", "9" * 400, "{a: ", "[[", "]]", "%YAML 1.2\n"),
]
SEED = """format: 1
name: baseline
steps:
  - id: build
    with: {flags: [-O3, "-g"], limit: 1.5e1}
    gate: >
      build.ok and
      not failed
    note: 'it''s'
"""


def pieces(chance: random.Random) -> str:
    """Signs of the grammar in any order."""
    return "".join(chance.choices(PIECES, k=chance.randint(1, 60)))


def damaged(chance: random.Random) -> str:
    """A good file with some characters changed, left out or put in."""
    text = list(SEED)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(text))
        text[at] = chance.choice(["", text[at] * 2, chance.choice(PIECES)])
    return "".join(text)


@pytest.mark.parametrize("make", [pieces, damaged])
def test_anything_is_read_or_refused_with_a_position(make: Any) -> None:
    """No input leads to anything but data or a complaint."""
    chance = random.Random(20261121)
    for _ in range(ROUNDS):
        text = make(chance)
        message = "x.yaml:1:1: expected nothing, got nothing"
        try:
            load_yaml(text, "x.yaml")
        except DefinitionError as error:
            message = error.message
        assert re.match(r"x\.yaml:\d+:\d+: .*expected .*, got ", message, re.DOTALL), text
