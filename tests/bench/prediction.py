"""`make bench-prediction`: do 80 % intervals of a session's time hold while the machine's load changes?

Real sessions of the plan `quick` on a kernel of ten lines. Before each one, up to five programs begin that keep a
core busy; they end after it. `--sessions 12` is a short run. The figures go to PREDICTION.md.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import fmean

from loop.model.index import SessionRow
from loop.store import sessions
from tests.bench.rig import Rig, busy_programs
from tests.faults.results import machine
from tests.projects import make_project

PAGE = Path(__file__).with_name("PREDICTION.md")
SESSIONS, MOST_BUSY, SEED = 44, 5, 7
SETTLE_S = 1.0  # How long the other programs run before a session begins.


def main() -> None:
    """Run the sessions and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    PAGE.write_text("\n".join(bench(parser.parse_args().sessions)))


def bench(count: int) -> list[str]:
    """The sessions, one after the other; the page."""
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as name:
        top, rig = Path(name), Rig(Path(name), "cache", "sessions")
        os.environ |= {"LOOP_CACHE": f"{name}/cache"}  # For the index that is read here.
        folder = make_project(top / "project")
        assert 0 == rig.run("trust", str(folder)).code
        busy = [chance.randint(0, MOST_BUSY) for _ in range(count)]
        for number in busy:
            with busy_programs(number):
                time.sleep(SETTLE_S)
                rig.run("run", "session", "quick", "--target", str(folder))
            print(line(number, sessions.rows(top / "sessions")[-1]), flush=True)
        rows = sessions.rows(top / "sessions")
    inside = [
        row.predicted.low_s <= row.seconds <= row.predicted.high_s
        for row in rows
        if row.predicted and row.complete
    ]
    share = f"{sum(inside)} of {len(inside)}, {100 * fmean(inside):.0f} %" if inside else "no outcome yet"
    print(f"inside the 80 % interval: {share}")
    heads = ("| Busy programs | Predicted | Interval | Actual | Held |", "|--:|--:|--:|--:|---|")
    return [
        "# Predicted and actual time under changing load",
        "",
        f"`make bench-prediction` on {machine()}: {count} sessions of `quick` on a small kernel.",
        "",
        f"- Inside the 80 % interval: {share}",
        "",
        *heads,
        *(line(number, row) for number, row in zip(busy, rows, strict=False)),
        "",
    ]


def line(busy: int, row: SessionRow) -> str:
    """The table's row of one session: busy programs, predicted time, interval, actual time."""
    predicted = row.predicted
    if predicted is None:
        return f"| {busy} | - | - | {row.seconds:.0f} s | - |"
    is_inside = "yes" if predicted.low_s <= row.seconds <= predicted.high_s else "no"
    between = f"{predicted.low_s:.0f} to {predicted.high_s:.0f} s"
    return f"| {busy} | {predicted.seconds:.0f} s | {between} | {row.seconds:.0f} s | {is_inside} |"


if __name__ == "__main__":
    main()
