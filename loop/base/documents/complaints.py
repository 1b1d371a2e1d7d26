"""Positions of values in a file, and complaints about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loop.base.errors import Complaint

MAX_QUOTED = 60
"""Maximum characters of a value in a message."""
MAX_TEXT = 200
"""Maximum characters of a path, or of `expected` or `got`, in a complaint."""
Place = tuple[str | int, ...]
"""Keys and indices that lead to a value."""
Position = tuple[int, int]
"""Line and column, from 1."""


def clip(text: str, length: int = MAX_QUOTED) -> str:
    """`text`, cut to `length` characters with `...` if it is longer."""
    return text if len(text) <= length else text[: length - 3] + "..."


def quote(value: Any) -> str:
    """A value for messages, in at most 60 characters: `'soon'`, `true`, `a list`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return clip(repr(value[: 2 * MAX_QUOTED]))
    if isinstance(value, int | float):
        return clip(repr(value))
    kind = type(value).__name__
    name = {"dict": "mapping", "tuple": "list"}.get(kind, kind)
    return f"a {name}" if value else f"an empty {name}"


@dataclass(slots=True)
class Marks:
    """Position of a list or mapping, and of its keys and values."""

    start: Position
    keys: dict[str, Position]
    values: "dict[Any, Marks | Position]"


@dataclass(frozen=True)
class Document:
    """Plain data from one file, with the position of each value."""

    name: str
    data: Any = None
    marks: Marks | Position = (1, 1)

    def position(self, place: Place, *, key: bool = False) -> Position:
        """Line and column of the value at `place`, or of its `key`; if it is missing, of what encloses it."""
        marks = self.marks
        for depth, step in enumerate(place, start=1):
            if not isinstance(marks, Marks) or step not in marks.values:
                break
            if key and depth == len(place) and isinstance(step, str):
                return marks.keys[step]
            marks = marks.values[step]
        return marks.start if isinstance(marks, Marks) else marks


def dotted_path(place: Place) -> str:
    """A place as text for complaints: `steps.0.budget_s`."""
    return clip(".".join(map(str, place)), MAX_TEXT)


def complain(
    document: Document, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
) -> Complaint:
    """Make a complaint about the value at `place`, or with `key` about that value's key."""
    line, column = document.position(place, key=key)
    texts = clip(expected, MAX_TEXT), clip(got, MAX_TEXT)
    return Complaint(document.name, line, column, dotted_path(place), *texts, hint)


def nearest(word: str, choices: Sequence[str]) -> list[str]:
    """At most three choices similar to `word`, best first."""
    if len(word) > MAX_TEXT:
        return []
    import difflib

    return difflib.get_close_matches(word, choices, n=3)


def did_you_mean(word: str, choices: Sequence[str]) -> str | None:
    """The hint `did you mean 'x'?` with the nearest other choice; None if none is similar."""
    similar = nearest(word, [choice for choice in choices if choice != word])
    return f"did you mean {similar[0]!r}?" if similar else None
