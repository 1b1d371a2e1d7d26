"""Values as a message shows them: short, on one line, as YAML writes them."""

import math
from typing import Any

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
