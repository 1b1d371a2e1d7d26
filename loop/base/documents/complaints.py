"""Where each value of a file stands, how a message shows it, and what is wrong there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loop.base.errors import Complaint

QUOTED = 60
"""Characters of a value that a message shows."""
LONGEST_SIDE = 200
"""Characters of a path, or of one side of a complaint."""
Place = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
Position = tuple[int, int]
"""Line and column, from 1."""


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
    if isinstance(value, int | float):
        return clip(repr(value))
    kind = type(value).__name__
    name = {"dict": "mapping", "tuple": "list"}.get(kind, kind)
    return f"a {name}" if value else f"an empty {name}"


@dataclass(slots=True)
class Marks:
    """Positions of a list or mapping and of what is in it."""

    at: Position
    keys: dict[str, Position]
    values: "dict[Any, Marks | Position]"


@dataclass(frozen=True)
class Document:
    """Plain data from one file, and where each value stands."""

    name: str
    data: Any = None
    marks: Marks | Position = (1, 1)

    def position(self, place: Place, *, key: bool = False) -> Position:
        """Line and column of a value (or of its key), or of the nearest thing around it."""
        marks = self.marks
        for depth, step in enumerate(place, start=1):
            if not isinstance(marks, Marks) or step not in marks.values:
                break
            if key and depth == len(place) and isinstance(step, str):
                return marks.keys[step]
            marks = marks.values[step]
        return marks.at if isinstance(marks, Marks) else marks


def dotted_path(place: Place) -> str:
    """A place as complaints write it: `steps.0.budget_s`."""
    return clip(".".join(map(str, place)), LONGEST_SIDE)


def complain(
    document: Document, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
) -> Complaint:
    """A complaint about the value (or the key) at `place`."""
    line, column = document.position(place, key=key)
    sides = clip(expected, LONGEST_SIDE), clip(got, LONGEST_SIDE)
    return Complaint(document.name, line, column, dotted_path(place), *sides, hint)


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
