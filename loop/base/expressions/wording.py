"""What is said of an expression that cannot be read, or has no answer."""

from loop.base.documents.quoting import QUOTED, clip
from loop.base.errors import UsageError

MAX_NUMBER = 10**300
"""Beyond it a number is no longer a measured or counted one."""


class ExpressionError(UsageError):
    """An expression that cannot be read, or has no answer."""

    def __init__(self, expected: str, got: str, column: int | None = None, *, of: str | None = None) -> None:
        self.expected, self.got, self.column = expected, got, column
        """`column`: where in the text, from 1; None for what only shows when it is evaluated."""
        place = f"column {column}: " if column else ""
        text = f"`{clip(of)}`: " if of else ""
        super().__init__(f"{text}{place}expected {expected}, got {got}")


def said(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "a value that is not known"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return clip(repr(value[: 2 * QUOTED]))
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < MAX_NUMBER):
        return clip(repr(value))
    return f"a {type(value).__name__}"
