"""How long will it take? Earlier runs of this target first, the author's estimate otherwise."""

from collections.abc import Sequence
from typing import Literal

from loop.model.pattern import Pattern
from loop.stats import median

RECENT = 10
"""Older runs than these say little about today's machine."""


def predict(pattern: Pattern, earlier: Sequence[float]) -> tuple[float, Literal["measured", "prior"]]:
    """Seconds a run of `pattern` will probably take, and what that rests on. `earlier`: seconds, oldest first."""
    if earlier:
        return median(earlier[-RECENT:]), "measured"
    return pattern.estimate.minutes * 60, "prior"
