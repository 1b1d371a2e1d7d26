"""What is wrong at one place of a file, and what may have been meant."""

from collections.abc import Sequence

from loop.base.documents.positions import Document, Place, dotted
from loop.base.documents.quoting import clip
from loop.base.errors import Complaint

LONGEST = 200
"""Characters of one side of a complaint."""


def complain(
    document: Document, place: Place, expected: str, got: str, hint: str | None = None, *, key: bool = False
) -> Complaint:
    """A complaint about the value (or the key) at `place`."""
    line, column = document.position(place, key=key)
    sides = clip(expected, LONGEST), clip(got, LONGEST)
    return Complaint(document.name, line, column, dotted(place), *sides, hint)


def nearest(word: str, choices: Sequence[str]) -> list[str]:
    """The choices that `word` may have been meant to be, best first."""
    if len(word) > LONGEST:
        return []
    import difflib

    return difflib.get_close_matches(word, choices, n=3, cutoff=0.6)


def did_you_mean(word: str, choices: Sequence[str]) -> str | None:
    """A hint at the nearest choice, when one is near."""
    close = nearest(word, choices)
    return f"did you mean {close[0]!r}?" if close else None
