"""What the runs of a pattern took, cost and found, and whether their time was predicted."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.learning.calibration import Calibration, Outcome, calibration
from loop.model.index import PatternRun, SessionRow

Run = tuple[SessionRow, PatternRun]
SHOWN = 3
"""Findings that are kept, the newest."""


@dataclass(frozen=True)
class Finding:
    """What one session found wrong by a pattern."""

    session: str
    step: str
    text: str
    """What is left of its message without numbers and paths."""


@dataclass(frozen=True)
class Experience:
    """Everything that the runs of one pattern took, cost and found."""

    minutes: float = 0.0
    """Of all its runs."""
    usd: float = 0.0
    """Its share of each session's bill: its seconds over the session's."""
    held: Calibration | None = None
    """Predicted against actual time of its whole runs; None where none was predicted."""
    found: tuple[Finding, ...] = ()
    """The newest first, each kind once."""


NOTHING = Experience()


def answered(rows: Iterable[SessionRow]) -> dict[str, list[Run]]:
    """By pattern the runs that say something of it, each with its session. `rows`: oldest first."""
    runs: dict[str, list[Run]] = {}
    for row in rows:
        for run in row.runs:
            if run.success is not None:
                runs.setdefault(run.pattern, []).append((row, run))
    return runs


def experience(runs: Sequence[Run]) -> Experience:
    """Of the runs of one pattern, oldest first."""
    return Experience(
        minutes=math.fsum(run.seconds for _, run in runs) / 60,
        usd=math.fsum(row.usd * min(1.0, run.seconds / row.seconds) for row, run in runs if row.seconds > 0),
        held=calibration([held for _, run in runs if (held := _held(run))]),
        found=tuple(_findings(runs))[:SHOWN],
    )


def _held(run: PatternRun) -> Outcome | None:
    """A whole run beside its prediction; None where it is one of neither."""
    if run.predicted_s is None or not run.whole or run.seconds <= 0:
        return None
    low, expected, high = run.predicted_s
    return Outcome(low, expected, high, run.seconds)


def _findings(runs: Sequence[Run]) -> Iterator[Finding]:
    """What was found, the newest first; each kind with the last session that found it."""
    seen: set[tuple[str, str]] = set()
    for row, run in reversed(runs):
        for one in row.failures if run.found else ():
            if one.pattern == run.pattern and (one.step, one.signature) not in seen:
                seen.add((one.step, one.signature))
                yield Finding(row.id, one.step, one.signature)
