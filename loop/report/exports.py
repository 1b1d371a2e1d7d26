"""Samples of a session as rows of CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from loop.model.measurement import Segment
from loop.model.record import Finished
from loop.report.plain import one_line

COLUMNS = {
    "session": "the session's id",
    "run": "number of the pattern's run in the session, from 1",
    "pattern": "name of the pattern",
    "step": "id of the step",
    "attempt": "which attempt at the step, from 1",
    "variant": "the side that was timed: `baseline`, a variant, `... again` or `... slowed by 5%`",
    "workload": "name of the workload",
    "round": "set of fresh processes, from 0: the replicate",
    "segment": "number of the segment within its step, in the order in which they were timed, from 0",
    "sample": "number of the sample within its segment, from 0",
    "calls": "calls that the sample is the mean of",
    "seconds": "seconds of one call",
    "sm_clock_mhz": "clock of the GPU's multiprocessors after the segment; empty where nobody tells",
    "power_w": "power draw of the board after the segment, likewise",
    "temperature_c": "temperature of the chip after the segment, likewise",
}
"""Names of the columns and what they hold."""
_FORMULA = ("=", "+", "-", "@", "\t")
"""What a spreadsheet takes for a formula at the beginning of a cell."""


@dataclass(frozen=True)
class Sampled:
    """What one step timed."""

    step: Finished
    segments: tuple[Segment, ...]


def rows(session: str, sampled: Sequence[Sampled]) -> str:
    """All samples as CSV (RFC 4180) under a line of names. A text that would be a formula gets a `'` before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for timed in sampled:
        step = timed.step
        head = [_text(session), step.run, _text(step.pattern), _text(step.step), step.attempt]
        for number, segment in enumerate(timed.segments):
            place = [_text(segment.side), _text(segment.workload), segment.round, number]
            after = segment.sensors[1] if segment.sensors else None
            sensors = (after.sm_clock_mhz, after.power_w, after.temperature_c) if after else (None, None, None)
            cells = ["" if value is None else value for value in sensors]
            for sample, seconds in enumerate(segment.seconds):
                writer.writerow([*head, *place, sample, segment.calls, repr(seconds), *cells])
    return out.getvalue()


def _text(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
