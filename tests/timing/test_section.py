"""What the report says of the GPU's sensors, and of compute-sanitizer."""

import itertools
from typing import Any

from loop.model.measurement import DeviceReading, Segment
from loop.model.record import Finished
from loop.model.sanitizing import SanitizeOutput, SanitizerReport, SanitizerRun
from loop.report.markdown import prose
from loop.timing.against_baseline import sensed
from tests.makers import make_finished
from tests.session.test_report_page import HOSTILE, record_of, report, section


def test_readings_become_a_line_of_each_side() -> None:
    """Least, median and most of its clocks; a reason counts once a segment."""
    readings = [DeviceReading(sm_clock_mhz=1000 + n, throttle=("heat",) if n < 3 else ()) for n in range(5)]
    pairs = itertools.pairwise(readings)
    segments = [
        Segment(side="small", workload="w", round=0, calls=1, seconds=(1.0,), sensors=pair) for pair in pairs
    ]
    (one,) = sensed([*segments, segments[0].model_copy(update={"side": "other", "sensors": None})])
    assert ("small", 4, (1000, 1002, 1004), {"heat": 3}) == (
        one.side, one.segments, one.sm_clock_mhz, one.throttled,
    )  # fmt: skip


def make_run(tool: str = "racecheck", status: str = "clean", **fields: Any) -> SanitizerRun:
    """One variant under one tool."""
    base = {"variant": "small", "build_id": "b", "workloads": ("w0", "w1"), "seconds": 1.0}
    return SanitizerRun.model_validate({**base, "tool": tool, "status": status, **fields})


def sanitized(*runs: SanitizerRun, **fields: Any) -> Finished:
    """The step that sanitized."""
    base = {"ok": True, "message": "s", "runs": runs, "version": "2025.3"}
    output = SanitizeOutput.model_validate({**base, **fields})
    return make_finished("sanitize", action="kernel.sanitize", output=output)


def controls(*finished: Finished) -> str:
    """The section on what stands behind the verdicts."""
    return section(report(record_of(()), finished), "Controls")


def test_a_finding_stands_among_the_controls() -> None:
    """With everything that is known of it; a name of somebody else's breaks out of nothing."""
    found = SanitizerReport(kind="race", words=f"Race {HOSTILE}", kernel=HOSTILE, places=("a.cuh:9",))
    run = make_run(status="found", reports=(found,), total=92, workload="w1")
    text = controls(sanitized(run, ok=False, found=("small",)))
    assert f"compute-sanitizer, racecheck: {prose('small has a race in')} " in text
    assert "at a.cuh:9, on w1: Race" in text
    assert "(91 more)" in text
    assert "clean" not in text
