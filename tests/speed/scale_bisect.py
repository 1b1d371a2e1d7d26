"""A section of SCALE.md: k-section on simulated histories, in rounds and in wall time, beside one machine.

Not a test. `python -m tests.speed.scale_bisect` prints it; `--share 10` takes one history in ten.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator
from statistics import fmean

from loop.bisect.model import Noise
from tests.bisect.simulated import History, done, in_rounds, problem
from tests.speed.bisect_rivals import pinpoint

COMMITS, SD, STEP = 1024, 0.03, math.log1p(0.05)
WIDTHS = (1, 3, 7, 15)
HISTORIES = 300
BUILD = 20.0
"""Single measurements that a build takes."""
FEWER, RIGHT = 2.3, 0.99
"""So many times fewer rounds at a width of 7, and so many right, are asked for."""
Measured = tuple[bool, bool, float, float]
"""Whether it is right, whether another commit is blamed, rounds, wall time."""


def history(number: int) -> tuple[int, History]:
    """One of the simulated histories, always the same, and its culprit."""
    culprit = random.Random(f"scale {number}").randint(1, COMMITS)
    return culprit, History(COMMITS, {culprit: STEP}, SD, f"scale {number}", paired=True)


def by_width(width: int) -> Callable[[int], Measured]:
    """So many probes at a time."""

    def measured(number: int) -> Measured:
        culprit, made = history(number)
        found = in_rounds(problem(COMMITS, Noise()), made.observe, width)
        blamed = found.answer.culprits
        return blamed == (culprit,), bool({*blamed} - {culprit}), float(len(found.rounds)), found.wall

    return measured


def one_machine(number: int) -> Measured:
    """Today's search on one machine: pair by pair, each chosen after the last; a try is no round."""
    culprit, made = history(number)
    found = done(problem(COMMITS, Noise()), made.observe)
    blamed = found.answer.culprits
    wall = found.search + found.confirm + BUILD * (found.builds - 1)
    return blamed == (culprit,), bool({*blamed} - {culprit}), math.nan, wall


def as_pinpoint(number: int) -> Measured:
    """Pinpoint's rule: ten measurements of a commit at a time, one commit after the other."""
    culprit, made = history(number)
    found = pinpoint(made)
    wrong = found.commit is not None and found.commit != culprit
    return found.commit == culprit, wrong, found.measured / 10, found.measured + BUILD * (found.builds - 1)


def section(share: int = 1) -> Iterator[str]:
    """Lines of the page; one history in `share`."""
    count = max(HISTORIES // share, 3)
    found = {f"k = {width}": _all(by_width(width), count) for width in WIDTHS}
    found["one machine, pair by pair"] = _all(one_machine, count)
    found["Pinpoint's rule"] = _all(as_pinpoint, count)
    yield "## Bisection with k probes at a time, simulated"
    yield ""
    yield f"{count} histories of {COMMITS:,} commits: one of them makes the kernel 5 % slower, at random."
    yield f"A measurement scatters by {SD:.0%}, a pair's log ratio by {math.sqrt(2) * SD:.1%}. All commits build."
    yield f"A build takes {BUILD:.0f} measurements. A round lasts as long as its longest probe, with its build."
    yield "The ends and the confirmation are rounds, too. `Wall` is in measurements."
    yield ""
    yield "| Search | Right | Wrong | Rounds | Fewer than k = 1 | Wall | Shorter than k = 1 | Than one machine |"
    yield "|:--|--:|--:|--:|--:|--:|--:|--:|"
    first, alone = found["k = 1"], found["one machine, pair by pair"]
    for name, rows in found.items():
        rounds, wall = _mean(rows, 2), _mean(rows, 3)
        cells = [f"{100 * _mean(rows, 0):.1f} %", f"{100 * _mean(rows, 1):.1f} %", f"{rounds:.1f}"]
        cells += [f"{_mean(first, 2) / rounds:.2f}x", f"{wall:.0f}", f"{_mean(first, 3) / wall:.2f}x"]
        cells.append(f"{_mean(alone, 3) / wall:.2f}x")
        yield f"| {name} | {' | '.join('-' if one.startswith('nan') else one for one in cells)} |"
    seven = found["k = 7"]
    fewer, right = _mean(first, 2) / _mean(seven, 2), _mean(seven, 0)
    met = "met" if fewer >= FEWER and right >= RIGHT else "**missed**"
    yield ""
    yield f"- At k = 7 {fewer:.2f}x fewer rounds, of {FEWER} asked for, {right:.1%} right of {RIGHT:.0%}: {met}."
    yield "- Pinpoint's rounds are of ten measurements of one commit, or of two neighbours."


def _all(search: Callable[[int], Measured], count: int) -> list[Measured]:
    return [search(number) for number in range(count)]


def _mean(rows: list[Measured], column: int) -> float:
    return fmean(float(row[column]) for row in rows)


def main() -> None:
    """Print the section."""
    parser = argparse.ArgumentParser(prog="python -m tests.speed.scale_bisect")
    parser.add_argument("--share", type=int, default=1, help="one history in so many")
    sys.stdout.write("\n".join(section(parser.parse_args().share)) + "\n")


if __name__ == "__main__":
    main()
