"""Text from records as plain characters: nothing that moves a cursor, hides or turns around what follows."""

import re
import unicodedata

from loop.base.remarks import ESCAPES

_ESCAPES = re.compile(ESCAPES)
_KINDS = ("Cc", "Cf", "Cs", "Co", "Cn")
"""Controls, marks that change direction or have no width, halves of pairs, and what is no character."""


def plain(text: object) -> str:
    """The text without escapes and control characters; line ends and tabs stay."""
    shown = _ESCAPES.sub("", str(text).replace("\r\n", "\n"))
    if shown.isprintable():  # Most texts are, and this is quick.
        return shown
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _KINDS else " " for c in shown)


def one_line(text: object) -> str:
    """The same in one line."""
    return " ".join(plain(text).split())


def shortened(text: object, longest: int) -> str:
    """The same in one line of at most `longest` characters; ends with three dots where it was cut."""
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: max(longest - 3, 0)].rstrip()}..."
