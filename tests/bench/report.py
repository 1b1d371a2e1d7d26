"""`make bench-report`: what a report of 500 records costs to render, in each of its formats.

Not a test: the figures go to REPORT.md. A golden session is stretched to 500 steps, 200 workloads and 20,000
samples.
`--quick` prints them instead.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from loop.base.documents import write_atomic
from loop.base.places import shipped
from loop.machine.machine import machine
from loop.model.measurement import Segment
from loop.report.html import page
from loop.session.page import Rendered, render_session
from loop.session.samples import as_csv
from loop.session.view import View
from tests.makers import make_finished
from tests.session import golden_sessions as golden
from tests.session.golden_steps import measure_step, measured, profile, profile_step, torch_step, verify_step

RECORDS = 500
WORKLOADS = 200
SAMPLES = 20_000
REPEATS = 9
"""Renderings of each format; the median counts."""
LIMIT_S = 0.3


def stretched() -> golden.Session:
    """A session with a failure in every tenth step, and as many steps and workloads as asked for."""
    names = [f"B{n % 8 + 1} H8 S{32 * (n + 1)} D64 causal float32" for n in range(WORKLOADS)]
    ratios = [0.5 + n / 100 for n in range(WORKLOADS)]
    said = "x" * 80
    filling = [
        make_finished(
            f"s{n}",
            run=n // 10 + 3,
            seconds=0.1 * n,
            status="passed" if n % 10 else "failed",
            message=said,
            output={"output": f"{said}\n" * 20} if n % 10 == 0 else {},
        )
        for n in range(RECORDS - 4)
    ]
    steps = [
        torch_step(),
        verify_step(names),
        measure_step(*measured(names, ratios)),
        profile_step(profile()),
        *filling,
    ]
    return golden.session(steps)


def rendered(made: golden.Session) -> Rendered:
    """The report and its figures."""
    given = View(made.record, made.finished)
    return render_session(shipped("templates"), given)


def formats(made: golden.Session) -> dict[str, Callable[[], str]]:
    """What is timed, by its name."""
    segments = [
        Segment(side="cpu", workload=f"w{n % WORKLOADS}", round=n // WORKLOADS, calls=3, seconds=(1e-6,) * 10)
        for n in range(SAMPLES // 10)
    ]
    sampled = [(made.finished[2], segments)]

    def html() -> str:
        report = rendered(made)
        return page(shipped("templates"), report.text, report.figures, made.record.status)

    return {
        "md": lambda: "".join([(report := rendered(made)).text, *(one.file for one in report.figures)]),
        "html": html,
        "csv": lambda: as_csv(made.record.head.id, sampled),
    }


def timed(render: Callable[[], str]) -> tuple[list[float], int]:
    """Seconds of each rendering, and the size of what came."""
    taken, size = [], 0
    for _ in range(REPEATS):
        begun = time.process_time()
        size = len(render().encode())
        taken.append(time.process_time() - begun)
    return taken, size


def results() -> str:
    """The table of REPORT.md."""
    lines = [
        "# What a report costs",
        "",
        f"{RECORDS} steps, {WORKLOADS} workloads, {SAMPLES:,} samples; the median of {REPEATS} renderings in one",
        f"process, with figures, in seconds of the processor. At most {LIMIT_S} s are wanted.",
        f"{machine().processor}, Python {machine().python}.",
        "",
        "| Format | Median | Slowest | Size |",
        "|:-------|-------:|--------:|-----:|",
    ]
    for name, render in formats(stretched()).items():
        taken, size = timed(render)
        lines.append(f"| {name} | {statistics.median(taken):.3f} s | {max(taken):.3f} s | {size / 1024:.0f} KiB |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and store."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="print the figures, store nothing")
    text = results()
    if options.parse_args().quick:
        print(text)
    else:
        write_atomic(Path(__file__).with_name("REPORT.md"), text)


if __name__ == "__main__":
    main()
