"""How long will it take? Earlier runs of this target first, the author's estimate otherwise."""

from collections.abc import Iterable, Sequence
from typing import Literal

from loop.model.pattern import Pattern
from loop.model.record import Finished, latest_attempts
from loop.stats import median

RECENT = 10
"""Older runs than these say little about today's machine."""


def predict(pattern: Pattern, earlier: Sequence[float]) -> tuple[float, Literal["measured", "prior"]]:
    """Seconds a run of `pattern` will probably take, and what that rests on. `earlier`: seconds, oldest first."""
    if earlier:
        return median(earlier[-RECENT:]), "measured"
    return pattern.estimate.minutes * 60, "prior"


def pattern_seconds(sessions: Iterable[Sequence[Finished]]) -> dict[str, list[float]]:
    """Seconds of each run that passed, by pattern, in the order of the sessions."""
    found: dict[str, list[float]] = {}
    for finished in sessions:
        steps = latest_attempts(finished)
        for key in dict.fromkeys((step.run, step.pattern) for step in steps):
            run = [step for step in steps if (step.run, step.pattern) == key]
            if all(step.status in ("passed", "skipped") for step in run):
                found.setdefault(key[1], []).append(sum(step.seconds for step in run))
    return found
