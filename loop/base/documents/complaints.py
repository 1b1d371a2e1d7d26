"""Where each value of a file stands, how a message shows it, and what is wrong there."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loop.base.errors import Complaint

QUOTED = 60
"""Characters of a value that a message shows."""


def clip(text: str, length: int = QUOTED) -> str:
    """`text`, its end left out when it is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 3] + "..."


def quote(value: Any) -> str:
    """A value in at most 60 characters; what it is, when it is a structure."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return clip(repr(value[: 2 * QUOTED]))
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    if isinstance(value, int | float):
        return clip(repr(value))
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


Place = tuple[str | int, ...]
BITS = 32
LONGEST_PATH = 12
"""Steps of a path that a complaint shows."""


def pack(line: int, column: int) -> int:
    """A position as one number: a tuple each would take three times the memory."""
    return line << BITS | column


def unpack(mark: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return mark >> BITS, mark & ((1 << BITS) - 1)


START = pack(1, 1)


@dataclass(slots=True)
class Marks:
    """Positions of a list or mapping and of what is in it."""

    at: int
    keys: dict[str, int]
    values: "dict[Any, Marks | int]"

    def line_of(self, key: str) -> int:
        """Line of a key."""
        return unpack(self.keys[key])[0]


@dataclass(frozen=True)
class Document:
    """Plain data from one file, and where each value stands."""

    name: str
    """The file as complaints name it."""
    data: Any = None
    marks: Marks | int = START

    def position(self, place: Place, *, key: bool = False) -> tuple[int, int]:
        """Line and column of a value (or of its key), or of the nearest thing around it."""
        marks: Marks | int = self.marks
        for depth, step in enumerate(place, start=1):
            if not isinstance(marks, Marks) or step not in marks.values:
                break
            if key and depth == len(place) and isinstance(step, str):
                return unpack(marks.keys[step])
            marks = marks.values[step]
        return unpack(marks.at if isinstance(marks, Marks) else marks)


def dotted(place: Place) -> str:
    """A place as complaints write it: `steps.0.budget_s`. Long and unprintable keys are shortened."""
    words = [_word(step) for step in place]
    return ".".join(words if len(words) <= LONGEST_PATH else [*words[:4], "...", *words[-4:]])


def _word(step: str | int) -> str:
    text = str(step)
    return clip(text) if text.isprintable() and text else clip(repr(text[:100]))


LONGEST_SIDE = 200
"""Characters of one side of a complaint."""


def complain(
    document: Document, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
) -> Complaint:
    """A complaint about the value (or the key) at `place`."""
    line, column = document.position(place, key=key)
    sides = clip(expected, LONGEST_SIDE), clip(got, LONGEST_SIDE)
    return Complaint(document.name, line, column, dotted(place), *sides, hint)


def nearest(word: str, choices: Sequence[str], alike: float = 0.6) -> list[str]:
    """The choices that `word` may have been meant to be, best first; `alike`: 1 is the same (difflib)."""
    if len(word) > LONGEST_SIDE:
        return []
    import difflib

    return difflib.get_close_matches(word, choices, n=3, cutoff=alike)


def did_you_mean(word: str, choices: Sequence[str]) -> str | None:
    """A hint at the nearest choice, when one is near."""
    close = nearest(word, choices)
    return f"did you mean {close[0]!r}?" if close else None
