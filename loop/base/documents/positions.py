"""Where each value of a file stands: a tree beside the data, small enough for a hundred thousand values."""

from dataclasses import dataclass
from typing import Any

from loop.base.documents.quoting import clip

Place = tuple[str | int, ...]
BITS = 32
LONGEST = 12
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
    return ".".join(words if len(words) <= LONGEST else [*words[:4], "...", *words[-4:]])


def _word(step: str | int) -> str:
    text = str(step)
    return clip(text) if text.isprintable() and text else clip(repr(text[:100]))
