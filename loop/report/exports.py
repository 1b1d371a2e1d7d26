"""A session in the formats of other tools: a trace for Perfetto or Speedscope, and rows of samples.

The trace: "Trace Event Format" (Google, 2016), as a JSON object. Times are microseconds of the session's own
time; what lay between two walks is left out. A step's phases are the signs of life kept in `ticks.jsonl`; a
session of an older version has none, and steps only.
"""

import csv
import datetime
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loop.model.measurement import DeviceReading, Segment
from loop.model.record import Finished, Line, Opened, SessionHead, Started, StepTick
from loop.report.plain import one_line, shortened

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
    for one in sampled:
        head = [_text(session), one.step.run, _text(one.step.pattern), _text(one.step.step), one.step.attempt]
        for number, segment in enumerate(one.segments):
            writer.writerows(_segment(head, number, segment))
    return out.getvalue()


def _segment(head: Sequence[object], number: int, segment: Segment) -> Iterator[list[object]]:
    place = [_text(segment.side), _text(segment.workload), segment.round, number]
    for sample, seconds in enumerate(segment.seconds):
        yield [*head, *place, sample, segment.calls, repr(seconds), *_sensor_cells(segment)]


def _sensor_cells(segment: Segment) -> list[object]:
    after = segment.sensors[1] if segment.sensors else None
    values = (after.sm_clock_mhz, after.power_w, after.temperature_c) if after else (None, None, None)
    return ["" if value is None else value for value in values]


def _text(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line


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


PROCESS = 1
WALKS, PATTERNS, STEPS, PHASES = 1, 2, 3, 4
THREADS = {WALKS: "walks", PATTERNS: "patterns", STEPS: "steps", PHASES: "phases"}
COLOURS = {"failed": "terrible", "aborted": "bad", "paused": "yellow", "skipped": "grey"}
LONGEST = 400

Event = dict[str, Any]


def trace(
    head: SessionHead, spans: Sequence[Span], ticks: Sequence[StepTick] = (), sampled: Sequence[Sampled] = ()
) -> str:
    """The trace as JSON. `sampled` brings what a GPU's sensors said while it was timed."""
    events = [*_names(head), *_walks(spans), *_patterns(spans)]
    for span in spans:
        events += [_step(span), *_signs(span, ticks)]
        events += [
            one
            for each in sampled
            if each.step is span.step or each.step == span.step
            for one in _sensors(span, each)
        ]
    other = {
        "session": one_line(head.id),
        "began": head.started.isoformat(),
        "target": one_line(head.target),
        "device": head.device,
        "loop": one_line(head.loop_version),
    }
    content = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _names(head: SessionHead) -> Iterator[Event]:
    yield _meta("process_name", 0, {"name": f"session {one_line(head.id)}"})
    for thread, name in THREADS.items():
        yield _meta("thread_name", thread, {"name": name})
        yield _meta("thread_sort_index", thread, {"sort_index": thread})


def _meta(name: str, thread: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": thread, "args": args}


def _slice(name: str, kind: str, thread: int, begin_s: float, seconds: float, args: Event) -> Event:
    """A complete event."""
    when = {"ts": _us(begin_s), "dur": _us(seconds)}
    return {"name": name, "cat": kind, "ph": "X", "pid": PROCESS, "tid": thread, **when, "args": args}


def _us(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e6, 3)


def _walks(spans: Sequence[Span]) -> Iterator[Event]:
    for walk in dict.fromkeys(span.walk for span in spans):
        mine = [span for span in spans if span.walk == walk]
        begin, end = mine[0].begin_s, max(span.end_s for span in mine)
        yield _slice(f"walk {walk}", "walk", WALKS, begin, end - begin, {})


def _patterns(spans: Sequence[Span]) -> Iterator[Event]:
    for walk, run, name in dict.fromkeys((one.walk, one.step.run, one.step.pattern) for one in spans):
        mine = [one for one in spans if (one.walk, one.step.run) == (walk, run)]
        begin, end = mine[0].begin_s, max(one.end_s for one in mine)
        yield _slice(one_line(name), "pattern", PATTERNS, begin, end - begin, {"run": run})


def _step(span: Span) -> Event:
    step = span.step
    args = {
        "pattern": one_line(step.pattern),
        "run": step.run,
        "attempt": step.attempt,
        "action": one_line(step.action),
        "status": step.status,
        "target_s": step.budget_s,
        "longest_silence_s": step.longest_silence_s,
        "message": shortened(step.message, LONGEST),
        "at": span.at.isoformat() if span.at else None,
    }
    event = _slice(one_line(step.step), "step", STEPS, span.begin_s, step.seconds, args)
    return {**event, "cname": COLOURS[step.status]} if step.status in COLOURS else event


def _signs(span: Span, ticks: Sequence[StepTick]) -> Iterator[Event]:
    """What the step said it was doing, each until the next; a heartbeat is a mark of its own."""
    step = span.step
    mine = [one for one in ticks if one.of(step) and one.seconds <= step.seconds]
    ends = [*(one.seconds for one in mine[1:]), step.seconds]
    for one, end in zip(mine, ends, strict=False):
        name, begin = shortened(one.note or "at work", LONGEST), span.begin_s + one.seconds
        yield _slice(name, "phase", PHASES, begin, end - one.seconds, {"step": one_line(step.step)})
        if one.heartbeat:
            mark = {"ph": "i", "s": "t", "pid": PROCESS, "tid": STEPS, "ts": _us(begin)}
            yield {"name": "heartbeat", "cat": "heartbeat", **mark, "args": {"note": name}}


def _sensors(span: Span, sampled: Sampled) -> Iterator[Event]:
    """Counters of the GPU. Their clock has an origin of its own: the last reading stands at the end."""
    readings = [reading for segment in sampled.segments for reading in segment.sensors or ()]
    timed = [(one.at_s, one) for one in readings if one.at_s is not None]
    last = max((at for at, _ in timed), default=0.0)
    for at, one in sorted(timed, key=lambda pair: pair[0]):
        when = span.end_s - (last - at)
        if when >= span.begin_s:
            for name, args in _counters(one):
                yield {"name": name, "cat": "gpu", "ph": "C", "pid": PROCESS, "ts": _us(when), "args": args}


def _counters(one: DeviceReading) -> Iterator[tuple[str, Event]]:
    known = {
        "GPU clock": ("MHz", one.sm_clock_mhz),
        "GPU power": ("W", one.power_w),
        "GPU temperature": ("°C", one.temperature_c),
    }
    for name, (unit, value) in known.items():
        if value is not None:
            yield name, {unit: value}
