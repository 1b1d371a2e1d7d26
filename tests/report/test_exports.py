"""Exports: a trace that other tools open, rows from which every ratio can be had again."""

import csv
import io
import json
import math
import re
from typing import Any

import pytest

from loop.model.measurement import DeviceReading, Segment
from loop.model.record import StepTick
from loop.report.exports import COLUMNS, Sampled, rows, spans, trace
from loop.timing.samples import log_ratios
from tests.conftest import ROOT
from tests.makers import make_finished, make_session_head
from tests.report.test_html import HOSTILE
from tests.session.golden_sessions import SESSIONS, Session

NUMBERS = (int, float)


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a trace; what JSON has no word for is refused."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    content = json.loads(text, parse_constant=refuse)
    assert "ms" == content["displayTimeUnit"]
    found = content["traceEvents"]
    assert isinstance(found, list)
    return found


def well_formed(event: dict[str, Any]) -> bool:
    """Whether an event has what the Trace Event Format asks for in its phase."""
    common = isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["args"], dict)
    if event["ph"] == "M":
        return common and event["name"] in ("process_name", "thread_name", "thread_sort_index")
    timed = common and isinstance(event["ts"], NUMBERS) and event["ts"] >= 0 and math.isfinite(event["ts"])
    if event["ph"] == "X":
        return timed and isinstance(event["tid"], int) and event["dur"] >= 0
    if event["ph"] == "C":
        return timed and all(isinstance(value, NUMBERS) for value in event["args"].values())
    return timed and event["ph"] == "i" and event["s"] in ("g", "p", "t")


def overlapping(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Slices of one thread that overlap without one being inside the other: no viewer can draw them."""
    found = []
    for thread in {event["tid"] for event in events if event["ph"] == "X"}:
        mine = sorted(
            (e for e in events if e["ph"] == "X" and e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])
        )
        for place, one in enumerate(mine):
            for other in mine[place + 1 :]:
                end = one["ts"] + one["dur"]
                if other["ts"] < end - 1 < other["ts"] + other["dur"] - 2:
                    found.append((one["name"], other["name"]))
    return found


def trace_of(made: Session, **more: Any) -> list[dict[str, Any]]:
    return events_of(trace(made.record.head, spans(made.lines, made.finished), **more))


@pytest.mark.parametrize("name", SESSIONS)
def test_a_trace_has_the_form_that_viewers_read(name: str) -> None:
    """Every event has the fields of its phase, and slices of a thread nest."""
    events = trace_of(SESSIONS[name]())
    assert [] == [event for event in events if not well_formed(event)]
    assert [] == overlapping(events)


def test_steps_stand_where_the_journal_has_them() -> None:
    """Microseconds of the session's own time: the hour between two walks is left out."""
    made = SESSIONS["interrupted"]()
    steps = {event["name"]: event for event in trace_of(made) if event.get("cat") == "step"}
    assert ["torch", "build", "verify", "measure"] == list(steps)
    assert 1.3e6 == steps["torch"]["dur"]
    assert 0.1e6 == steps["torch"]["ts"]
    assert pytest.approx((0.1 + 1.3 + 0.1 + 4.4 + 0.1) * 1e6) == steps["verify"]["ts"]
    assert "aborted" == steps["measure"]["args"]["status"]
    assert 2 == sum(event.get("cat") == "walk" for event in trace_of(made))


def test_signs_of_life_are_phases_of_their_step() -> None:
    """Each lasts until the next; a heartbeat is a mark; one of another attempt is left out."""
    made = SESSIONS["passed"]()
    key = {"run": 2, "pattern": "baseline-first", "step": "verify"}
    ticks = [
        StepTick(seconds=1.0, note="reference of w0", **key),
        StepTick(seconds=3.0, note="cpu on w0", heartbeat=True, **key),
        StepTick(seconds=1.0, note="another attempt", attempt=2, **key),
    ]
    events = trace_of(made, ticks=ticks)
    phases = [event for event in events if event.get("cat") == "phase"]
    assert [("reference of w0", 2e6), ("cpu on w0", 2.4e6)] == [(e["name"], e["dur"]) for e in phases]
    assert 1 == sum(event["ph"] == "i" for event in events)
    assert [] == overlapping(events)


def test_what_the_sensors_said_are_counters() -> None:
    """On the session's time, the last reading at the end of the step."""
    made = SESSIONS["gpu"]()
    step = next(one for one in made.finished if one.step == "measure")
    readings = (
        DeviceReading(sm_clock_mhz=1980, power_w=61.0, at_s=100.0),
        DeviceReading(power_w=70.0, at_s=101.0),
    )
    segment = Segment(side="small", workload="w", round=0, calls=1, seconds=(1e-6,), sensors=readings)
    counters = [e for e in trace_of(made, sampled=[Sampled(step, (segment,))]) if e["ph"] == "C"]
    assert ["GPU clock", "GPU power", "GPU power"] == [event["name"] for event in counters]
    assert pytest.approx(1e6) == counters[2]["ts"] - counters[1]["ts"]
    assert [] == [event for event in counters if not well_formed(event)]


def test_a_hostile_name_is_a_name() -> None:
    """It stays JSON, and no controls are in it."""
    head = make_session_head(id="x", target=HOSTILE)
    events = events_of(trace(head, spans((), [make_finished(message=HOSTILE)])))
    assert all("\x1b" not in json.dumps(event, ensure_ascii=False) for event in events)


def sampled(side: str = "cpu", workload: str = "w", *seconds: float) -> Segment:
    """A segment of one round."""
    return Segment(side=side, workload=workload, round=0, calls=3, seconds=seconds or (1e-6, 2e-6))


def table(*segments: Segment) -> list[dict[str, str]]:
    """The rows of a CSV, read back."""
    text = rows("s", [Sampled(make_finished("measure"), segments)])
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_is_one_sample() -> None:
    """Every sample of every segment, in the order in which they were timed."""
    read = table(sampled(), sampled("baseline"))
    assert [("cpu", "0", "0"), ("cpu", "0", "1"), ("baseline", "1", "0"), ("baseline", "1", "1")] == [
        (row["variant"], row["segment"], row["sample"]) for row in read
    ]
    assert list(COLUMNS) == list(read[0])
    assert {"3"} == {row["calls"] for row in read}


def test_the_ratio_of_a_round_can_be_had_again_from_the_rows() -> None:
    """To the last digit."""
    timed = [sampled("baseline", "w", 3.1e-6, 2.9e-6, 3e-6), sampled("cpu", "w", 1.1e-6, 0.9e-6, 1.05e-6)]
    again = []
    for number in ("0", "1"):
        mine = [row for row in table(*timed) if row["segment"] == number]
        values = tuple(float(row["seconds"]) for row in mine)
        again.append(Segment(side=mine[0]["variant"], workload="w", round=0, calls=3, seconds=values))
    assert log_ratios(timed, "baseline", "cpu") == log_ratios(again, "baseline", "cpu")


def test_no_cell_is_a_formula_or_breaks_its_row() -> None:
    """A name that a spreadsheet would run gets an apostrophe; quotes, commas and line ends stay inside a cell."""
    names = ["=cmd|' /C calc'!A1", "+1", "-1", "@x", 'a,"b"\nc', HOSTILE]
    read = table(*(sampled(name, name) for name in names))
    assert 2 * len(names) == len(read)
    assert ["'=cmd|' /C calc'!A1", "'+1", "'-1", "'@x", 'a,"b" c'] == [row["variant"] for row in read[::2]][:5]
    assert all("\x1b" not in row["workload"] for row in read)


def test_the_document_names_every_column() -> None:
    """As the code has them, in their order."""
    documented = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "exports.md").read_text(), re.MULTILINE)
    assert list(COLUMNS.items()) == [row for row in documented if row[0] in COLUMNS]
