"""`make bench-cheats`: variants that cheat, through verify and measure: rejected, `invalid`, or without gain?"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import LoopError
from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.machine.machine import cores, machine
from loop.model.workloads import expand_sets
from loop.timing.doubts import find_doubts
from loop.timing.samples import Limits, Pair, Timings, log_time
from loop.timing.schedule import Untimed, measure
from loop.workers.bench import Bench
from tests.gate.cheats import BIG, C_CHEATS, PYTHON_CHEATS, REMAINS, honest_like, open_cheats
from tests.targets import make_sides

GAIN = 1.15  # A cheat gains if it seems more than this many times as fast as the honest variant.
TRIES = 2  # A gain has to show twice, because one ratio on a busy machine says little.


@dataclass(frozen=True)
class Outcome:
    """The outcome of one cheat."""

    name: str
    word: str
    """`rejected` when checked, `incorrect` or `invalid` when timed, `not timed`, `no gain`, or `GAINS`."""
    reason: str

    @property
    def caught(self) -> bool:
        """Whether it gained nothing, or is a known gap (`REMAINS`)."""
        return self.word != "GAINS" or self.name in REMAINS


def outcome(bench: Bench, name: str, rounds: int = 2) -> Outcome:
    """Check one cheat, then time it beside the honest variant in the same language."""
    (side,) = make_sides(bench, name)
    (checks,) = run_to_end(verify(bench, [Job(side, expand_sets(bench.target, ["some"], "float32"))]))
    if checks.first_failure:
        failure = checks.first_failure
        return Outcome(name, "rejected", f"{failure.status}: {failure.message}")
    for _ in range(TRIES):
        result = time_cheat(bench, name, rounds)
        if result.caught:
            break
    return result


def time_cheat(bench: Bench, name: str, rounds: int) -> Outcome:
    """Time a cheat that passed its checks, beside the honest variant."""
    honest = honest_like(name)
    sides = make_sides(bench, honest, name)
    try:
        timings = run_to_end(measure(bench, sides, [BIG], Limits(rounds, 60.0, 1, least_rounds=rounds)))
    except Untimed as error:
        return Outcome(name, "not timed" if name in str(error) else "GAINS", str(error))
    doubts = run_to_end(find_doubts(bench, timings, (), [Pair(side, honest, "self") for side in sides]))
    doubts = [doubt for doubt in doubts if "held back" not in doubt.reason]  # Of other programs, not of a side.
    if against_it := [doubt for doubt in doubts if doubt.variant == name]:
        return Outcome(name, against_it[0].verdict, against_it[0].reason)
    ratio = seconds(timings, honest) / seconds(timings, name)
    blamed = f"; {honest} is blamed: {doubts[0].reason}" if doubts else ""
    return Outcome(name, "GAINS" if ratio > GAIN or doubts else "no gain", f"{ratio:.2f}x{blamed}")


def seconds(timings: Timings, name: str) -> float:
    return math.exp(log_time(segment for segment in timings.segments if segment.side == name))


def table(results: Sequence[Outcome]) -> str:
    """One row a cheat, and the sum."""
    rows = [f"| {result.name} | {result.word} | {result.reason.replace('|', '/')} |" for result in results]
    caught = sum(result.caught for result in results)
    return "\n".join(["| Cheat | Outcome | Why |", "|:--|:--|:--|", *rows, "", f"{caught} of {len(results)}"])


def main() -> int:
    """Print the table; the exit code is 1 if a cheat gains."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="cheats to try; none: all")
    every_cheat = [*PYTHON_CHEATS, *(f"c_{name}" for name in C_CHEATS)]
    names, results = parser.parse_args().names or every_cheat, list[Outcome]()
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            begun = time.monotonic()
            # A folder of its own: a cheat that overwrites the inputs would make the next ones wrong.
            with open_cheats(Path(root) / name, Path(root) / "cache") as bench:
                try:
                    results.append(outcome(bench, name))
                except LoopError as error:
                    results.append(Outcome(name, "GAINS", f"the whole command ends: {error}"))
            print(f"{results[-1]} ({time.monotonic() - begun:.0f} s)", file=sys.stderr, flush=True)
    print(f"On {machine().processor}, {cores()} cores.\n\n{table(results)}")
    return int(not all(result.caught for result in results))


if __name__ == "__main__":
    sys.exit(main())
