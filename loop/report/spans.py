"""When each step ran: journal lines to stretches of a session's own time, without what lay between its walks."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from loop.model.record import Finished, Line, Opened, Started


@dataclass(frozen=True)
class Span:
    """One attempt at a step."""

    step: Finished
    begin_s: float
    """Seconds of the session's own time at which it began."""
    walk: int
    """Which walk it belongs to, from 1: a resumed session has several."""
    at: datetime.datetime | None
    """When that was; None where only the order is known."""

    @property
    def end_s(self) -> float:
        """When it ended, likewise."""
        return self.begin_s + self.step.seconds


def spans(lines: Sequence[Line], finished: Sequence[Finished] = ()) -> tuple[Span, ...]:
    """Every attempt at a step, in order.

    By the times of the journal's lines; where there are none, the steps one after the other.
    """
    return _by_journal(lines) if lines else _in_order(finished)


def _in_order(finished: Sequence[Finished]) -> tuple[Span, ...]:
    found, now = [], 0.0
    for one in finished:
        found.append(Span(one, now, 1, None))
        now += one.seconds
    return tuple(found)


def _by_journal(lines: Sequence[Line]) -> tuple[Span, ...]:
    found: list[Span] = []
    walk, before, opened = 0, 0.0, lines[0].at
    began: dict[tuple[int, str, str], datetime.datetime] = {}
    last = lines[0].at
    for line in lines:
        event = line.event
        if isinstance(event, Opened):
            before += max(0.0, (last - opened).total_seconds()) if walk else 0.0
            walk, opened = walk + 1, line.at
        elif isinstance(event, Started):
            began[_key(event)] = line.at
        elif isinstance(event, Finished):
            at = began.pop(_key(event), line.at - datetime.timedelta(seconds=max(0.0, event.seconds)))
            begin = before + max(0.0, (at - opened).total_seconds())
            found.append(Span(event, begin, max(1, walk), at))
        last = max(last, line.at)
    return tuple(found)


def _key(event: Started | Finished) -> tuple[int, str, str]:
    return event.run, event.pattern, event.step
