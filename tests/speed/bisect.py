"""`make bench-bisect`: how the search for a commit fares on simulated histories, beside other rules.

Not a test: the figures go to BISECT.md. `--quick` is a smoke test of it, a twentieth of the histories, to stdout.
"""

import argparse
import datetime
import functools
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from loop.bisect.model import Noise, Problem
from loop.machine.machine import machine
from tests.bisect.simulated import History, done, heavy, problem, runs_of, slow_at_times
from tests.bisect.simulated import with_outliers as outliers
from tests.speed.bisect_cells import Cell, Tally, history_of, left_open, percent, right, searched, words, wrong
from tests.speed.bisect_rivals import Named, Rival, mean_of, pass_fail_bayes, pinpoint, plain

RUNS = {64: 1000, 1024: 600}
"""Histories of the main table, by length."""
FEW, SOME = 150, 400
"""Histories of the other tables: those with slow searches, the rest."""
RARE = {64: 60, 1024: 15}
"""The same where a search takes hundreds of measurements."""
QUICK = 40
"""`--quick` takes one in so many."""
RIGHT = 0.985
"""Accuracy that the tuned mean has to reach."""
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40)


CELLS = (
    Cell(64, 0.02, 0.30, 14, 10),
    Cell(64, 0.02, 0.10, 18, 20),
    Cell(64, 0.05, 0.10, 60, 50),
    Cell(64, 0.02, 0.03, 90, 100),
    Cell(1024, 0.02, 0.30, 18, 10),
    Cell(1024, 0.02, 0.10, 25, 20),
    Cell(1024, 0.05, 0.10, 80, 50),
    Cell(1024, 0.02, 0.03, 125, 100),
)
LOW = (Cell(64, 0.05, 0.03), Cell(1024, 0.05, 0.03))
COMPARED = (
    Cell(64, 0.02, 0.03),
    Cell(64, 0.05, 0.10),
    Cell(1024, 0.02, 0.03),
    Cell(1024, 0.02, 0.10),
    Cell(1024, 0.05, 0.10),
)


def counted(tally: Tally, cell: Cell) -> str:
    """Search, confirmation and builds beside what is to be reached."""
    search, confirm = tally.mean(lambda one: one.search), tally.mean(lambda one: one.confirm)
    few = math.ceil(math.log2(cell.last)) + 2
    builds = (
        f"{tally.mean(lambda one: one.builds):.2f} ({percent(tally.share(lambda one, _: one.builds <= few))} %)"
    )
    return f"{search:.1f}{mark(search, cell.search)} | {confirm:.1f}{mark(confirm, cell.confirm)} | {builds}"


def mark(reached: float, demanded: int | None) -> str:
    """The count to reach, and whether it is."""
    return "" if demanded is None else f" of {demanded}" if reached <= demanded else f" **over {demanded}**"


def main_table(scale: int) -> Iterator[str]:
    """The counts to reach."""
    yield "| N | sigma | step | step/sigma | search | confirm | builds (in log2 N + 2) | right | wrong | open |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for cell in (*CELLS, *LOW):
        runs = (RARE if cell in LOW else RUNS)[cell.last]
        tally = noted(cell.title, lambda cell=cell, runs=runs: searched(cell, max(runs // scale, 2)))  # type: ignore[misc]
        yield f"| {cell.title} | {counted(tally, cell)} | {words(tally)} |"


def noted(title: str, work: Callable[[], Tally]) -> Tally:
    """Do it, and say on the screen how long it took."""
    begun = time.perf_counter()
    found = work()
    sys.stderr.write(f"{title}: {time.perf_counter() - begun:.0f} s\n")
    return found


def rivals_table(scale: int) -> Iterator[str]:
    """The same histories under other rules; all but Pinpoint with the same verification of the ends."""
    yield "| N | sigma | step | step/sigma | plain | mean of k, tuned | pass/fail Bayes | Pinpoint | **search** |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for cell in COMPARED:
        runs = max(SOME // scale, 3)
        begun = time.perf_counter()
        count = tuned(cell, max(FEW // scale, 3))
        rules: Sequence[Rival] = (plain, functools.partial(mean_of, count), pass_fail_bayes, pinpoint)
        told = [rival(cell, rule, runs) for rule in rules]
        told[1] += f", k = {count}"
        ours = searched(cell, runs)
        told.append(f"**{ours.mean(lambda one: one.search):.0f} ({100 * ours.share(right):.0f})**")
        sys.stderr.write(f"rivals {cell.title}: {time.perf_counter() - begun:.0f} s\n")
        yield f"| {cell.title} | {' | '.join(told)} |"


def rival(cell: Cell, rule: Rival, runs: int) -> str:
    """Mean measurements and accuracy of another rule."""
    found = [named(cell, rule, number) for number in range(runs)]
    accuracy = sum(is_right for _, is_right in found) / runs
    return f"{sum(one.measured for one, _ in found) / runs:.0f} ({100 * accuracy:.0f})"


def named(cell: Cell, rule: Rival, number: int) -> tuple[Named, bool]:
    """What a rule says of one history, and whether that is so."""
    history = history_of(cell, number)
    found = rule(history)
    return found, found.commit in history.steps


def tuned(cell: Cell, runs: int) -> int:
    """The fewest measurements a commit with which the mean is right often enough, by who knows the truth."""
    for count in COUNTS:
        rule = functools.partial(mean_of, count)
        if sum(named(cell, rule, number)[1] for number in range(runs)) >= RIGHT * runs:
            return count
    return COUNTS[-1]


MIDDLE, CLEAR, SMALL = Cell(64, 0.05, 0.10), Cell(64, 0.02, 0.10), Cell(64, 0.02, 0.03)
PAIRS = Cell(64, 0.008, 0.03)
Variant = tuple[str, Cell, dict[str, object], Noise]
FREE, LAID = Noise(paired=False), Noise(paired=False, relinks=8)
VARIANTS: tuple[Variant, ...] = (
    ("in pairs with the good end", CLEAR, {"paired": True}, Noise()),
    ("in pairs with the good end", SMALL, {"paired": True}, Noise()),
    ("one by one, speed drifts 2 % a measurement", CLEAR, {"drift_sd": 0.02}, FREE),
    ("in pairs, speed drifts 2 % a measurement", CLEAR, {"drift_sd": 0.02, "paired": True}, Noise()),
    ("Student's t noise, 3 degrees", MIDDLE, {"noise": heavy}, FREE),
    ("10 % outliers, 10 sigma both ways", CLEAR, {"noise": outliers}, FREE),
    ("10 % outliers, 10 sigma both ways", MIDDLE, {"noise": outliers}, FREE),
    ("10 % outliers, 10 sigma both ways", SMALL, {"noise": outliers}, FREE),
    ("10 % outliers, all slower", MIDDLE, {"noise": slow_at_times}, FREE),
    ("20 % broken builds", CLEAR, {"broken": 0.2}, FREE),
    ("20 % broken builds", MIDDLE, {"broken": 0.2}, FREE),
    ("layout 1 %, up to 8 relinks", CLEAR, {"layout_sd": 0.01}, LAID),
    ("layout 1 %, up to 8 relinks", SMALL, {"layout_sd": 0.01}, LAID),
    ("the same in pairs", PAIRS, {"layout_sd": 0.01, "paired": True}, Noise(relinks=8)),
)


def variants_table(scale: int) -> Iterator[str]:
    """What may go wrong."""
    yield "| Variant | N | sigma | step | step/sigma | search | confirm | builds | links | right | wrong | open |"
    yield "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, cell, terms, noise in VARIANTS:
        asked = functools.partial(with_noise, noise=noise)
        work = functools.partial(searched, cell, max(FEW // scale, 3), asked, **terms)
        tally = noted(f"{name}, {cell.title}", work)
        numbers = [
            lambda one: one.search,
            lambda one: one.confirm,
            lambda one: one.builds,
            lambda one: one.relinks,
        ]
        means = " | ".join(f"{tally.mean(number):.1f}" for number in numbers)
        yield f"| {name} | {cell.title} | {means} | {words(tally)} |"


def with_noise(history: History, noise: Noise) -> Problem:
    """A search that is told of the noise so."""
    return problem(history.last, noise)


MANY = 500
"""Histories of the first row of the table of layouts."""
Between = tuple[Cell, float, int, dict[str, object], str]
"""A cell, the noise between its builds, how many histories, what else is so, and its name."""


def _between() -> Iterator[Between]:
    """Histories in which builds differ on their own, and nobody says so."""
    yield SMALL, 0.01, MANY, {}, ""
    for layout in (0.0, 0.005, 0.02):
        yield SMALL, layout, FEW, {}, ""
    for cell in (Cell(64, 0.02, 0.05), CLEAR):
        for layout in (0.0, 0.005, 0.01, 0.02):
            yield cell, layout, FEW, {}, ""
    yield PAIRS, 0.01, FEW, {"paired": True}, "in pairs"
    yield Cell(64, 0.005, 0.03), 0.01, FEW, {}, ""
    yield SMALL, 0.01, FEW, {"layout": heavy}, "offsets of Student's t, 3 degrees"
    yield SMALL, 0.01, FEW, {"alike": 4}, "of four commits in a row three change nothing"
    yield SMALL, 0.01, FEW, {"broken": 0.2}, "20 % broken builds"
    yield SMALL, 0.01, FEW, {"places": (1, 2, 63, 64)}, "a step in the first or last two commits"
    yield Cell(64, 0.02, 0.0), 0.01, FEW, {}, "no step"
    yield Cell(1024, 0.02, 0.03), 0.01, RARE[64], {}, ""


def layouts_table(scale: int) -> Iterator[str]:
    """Builds differ by their layout, nothing is told, and nothing is relinked."""
    means = "search | confirm | builds"
    yield f"| Histories | N | sigma | step | layout | {means} | named | wrong | range | holds it | mean |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for cell, layout, runs, terms, name in _between():
        count = max(runs // scale, 3)
        work = functools.partial(_laid, cell, count, layout, **terms)
        tally = noted(f"layout {layout:g} {name}, {cell.title}", work)
        numbers = (lambda one: one.search, lambda one: one.confirm, lambda one: one.builds)
        means = " | ".join(f"{tally.mean(number):.0f}" for number in numbers)
        where = f"{cell.last} | {cell.sd:.1%} | {cell.slowdown:.0%}{f', {name}' if name else ''}"
        yield f"| {count} | {where} | {layout:.1%} | {means} | {answered(tally)} |"


def answered(tally: Tally) -> str:
    """Shares of a commit, of a wrong one and of a range; of ranges those with a culprit, and their mean size."""
    ranges = [(one.answer.range, truth) for one, truth in tally.found if one.answer.range]
    held = [any(run[0] <= culprit <= run[1] for culprit in truth) for run, truth in ranges]
    sizes = [run[1] - run[0] + 1 for run, _ in ranges]
    single = tally.share(lambda one, _: bool(one.answer.culprits))
    blamed = tally.share(lambda one, truth: not truth.issuperset(one.answer.culprits))
    of_ranges = f"{percent(sum(held) / len(held))} | {sum(sizes) / len(sizes):.1f}" if ranges else " | "
    return f"{percent(single)} | {percent(blamed)} | {percent(len(ranges) / len(tally.found))} | {of_ranges}"


def _laid(
    cell: Cell, runs: int, layout_sd: float, places: Sequence[int] = (), alike: int = 1, **terms: object
) -> Tally:
    """Searches where builds differ; a step at `places`; of `alike` commits in a row all but one change nothing."""
    tally = Tally()
    for number in range(runs):
        history = history_of(cell, number, layout_sd=layout_sd, places=places, alike=alike, **terms)
        asked = problem(cell.last, Noise(paired=history.paired))
        if alike > 1:
            commits = tuple(replace(one, group=str(history.kernel(at))) for at, one in enumerate(asked.commits))
            asked = replace(asked, commits=commits)
        tally.found.append((done(asked, history.observe), frozenset(history.steps)))
    return tally


SEVERAL = ((0.15, 0.15), (0.2, 0.1), (0.05, 0.05), (0.1, 0.1, 0.1), (0.3, 0.04), (0.2, -0.1), (-0.2, 0.3))


def several_table(scale: int) -> Iterator[str]:
    """Histories with several steps, 64 commits, sigma 2 %."""
    yield "| Steps | search | confirm | builds | all named | some named | a wrong one | open |"
    yield "|:--|--:|--:|--:|--:|--:|--:|--:|"
    for steps in SEVERAL:
        tally = noted(f"several {steps}", functools.partial(several, steps, max(FEW // scale, 3)))
        means = [tally.mean(number) for number in (lambda one: one.search, lambda one: one.confirm)]
        some = tally.share(lambda one, truth: 0 < len(truth.intersection(one.answer.culprits)) < len(truth))
        shares = (tally.share(right), some, tally.share(wrong), tally.share(left_open))
        title = ", ".join(f"{step:+.0%}" for step in steps)
        builds = tally.mean(lambda one: one.builds)
        yield f"| {title} | {means[0]:.0f} | {means[1]:.0f} | {builds:.1f} | {' | '.join(map(percent, shares))} |"


def several(slowdowns: Sequence[float], runs: int) -> Tally:
    """Searches through histories with these steps, in this order, at random commits; those up are culprits."""
    tally = Tally()
    for number in range(runs):
        rng = random.Random(f"{slowdowns} {number}")
        places = sorted(rng.sample(range(1, 65), len(slowdowns)))
        steps = dict(zip(places, map(math.log1p, slowdowns), strict=True))
        found = done(problem(64), History(64, steps, 0.02, f"{slowdowns} {number}").observe)
        tally.found.append((found, frozenset(at for at, step in steps.items() if step > 0)))
    return tally


RATES = ((0.0, 1.0), (0.0, 0.9), (0.0, 0.5), (0.0, 0.2), (0.05, 0.5))


def runs_table(scale: int) -> Iterator[str]:
    """Correctness: runs that pass or fail."""
    yield "| N | fails before | after | runs, search | confirm | builds (most) | tries | right | wrong | open |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for last in (64, 1024):
        for rates in RATES:
            tally = noted(f"runs {last} {rates}", functools.partial(flaky, last, rates, max(SOME // scale, 3)))
            means = [tally.mean(number) for number in (lambda one: one.search, lambda one: one.confirm)]
            builds = f"{tally.mean(lambda one: one.builds):.2f} ({max(one.builds for one, _ in tally.found)})"
            tries = tally.mean(lambda one: len(one.journal))
            counts = f"{means[0]:.0f} | {means[1]:.0f} | {builds} | {tries:.0f}"
            yield f"| {last} | {rates[0]:g} | {rates[1]:g} | {counts} | {words(tally)} |"


def flaky(last: int, rates: tuple[float, float], runs: int) -> Tally:
    """Searches among runs with these failure rates before and from the culprit on."""
    tally = Tally()
    for number in range(runs):
        seed = f"{last} {rates} {number}"
        culprit = random.Random(seed).randint(1, last)
        found = done(problem(last, metric="correctness"), runs_of(last, culprit, rates, seed))
        tally.found.append((found, frozenset({culprit})))
    return tally


def nothing_table(scale: int) -> Iterator[str]:
    """No step at all: both ends are as fast."""
    yield "| sigma | search | no regression | swapped | inconclusive | somebody blamed |"
    yield "|--:|--:|--:|--:|--:|--:|"
    for sd in (0.005, 0.02, 0.05):
        cell = Cell(64, sd, 0.0)
        tally = noted(f"nothing {sd}", functools.partial(searched, cell, max(SOME // scale, 3)))
        shares = (
            tally.share(lambda one, _: one.answer.outcome == "no_regression" and not one.answer.swapped),
            tally.share(lambda one, _: one.answer.swapped),
            tally.share(lambda one, _: one.answer.outcome == "inconclusive"),
            tally.share(lambda one, _: bool(one.answer.found)),
        )
        yield f"| {sd:.1%} | {tally.mean(lambda one: one.search):.0f} | {' | '.join(map(percent, shares))} |"


INTRODUCTION = """\
**What it shows.** With `bisect/bisection` nobody is wrongly blamed under the noise that it supposes, and the
counts to reach are met; builds are those of plain bisection, save for a few histories in a hundred where noise
leads it astray for a while. Outliers cost measurements or leave the commit open; they name nobody else. Where
builds differ on their own by an amount that compares with the step, a range of commits is named in place of one.

**The model.** A history has N commits after the good end, one of which, at random, makes the kernel slower by
the step for good. A single measurement is a log time that scatters by sigma about its commit's level. The
search observes commits one by one, confirmations are pairs of culprit and parent; a pair counts as two, its log
ratio scatters by 1.41 sigma. *Search* holds the verification of both ends and what is asked for after the
confirmation to see whether the culprit explains the whole; *confirm* holds all pairs, those of suspects that
were let go as well. A build costs as much as 20 measurements. A slowdown of 30 % is a step of log 1.3 = 26 %,
so that step/sigma is a little below its name. *Right*: exactly the culprits are named, or, with broken builds,
a range that cannot be told apart holds the culprit. *Wrong*: somebody else is named. *Open*: nobody is.

**Layouts.** Each build has an offset of its own, the same in each of its measurements. The search is not told of
it. *Named*: single commits are blamed. *Wrong*: another one is. *Range*: a run of commits that cannot be told
apart; *holds it*: of these ranges those with the culprit; *mean*: commits of a range. The rest names nobody.
Where both levels and all offsets' scatter are known, and all builds measured without noise, a step of three
standard deviations leaves a range of 2.5 commits in the mean.

**In pairs.** Where the noise of both sides of a pair is independent, as here, pairs with the good end cost
about twice as many measurements as single ones: they pay where the machine drifts by more than it scatters. Of
measured pairs sigma is what pairing leaves of the scatter.

**The other rules** see the same histories. *Plain*, *mean of k* and *pass/fail Bayes* hold each measurement
against the middle of both ends, which are verified as by the search. *Mean of k* takes the smallest k that is
right in 98.5 % of all cases, which nobody knows beforehand. *Pass/fail Bayes* is the core of `git_bayesect`
with its priors, stopped at 0.99. *Pinpoint* is Chromium's rule, its thresholds made anew for a shift of one
interquartile range. None of them confirms.
"""


TABLES: dict[str, Callable[[int], Iterable[str]]] = {
    "Counts to reach": main_table,
    "Beside other rules: mean measurements (accuracy in %)": rivals_table,
    "Noise between builds, nothing told": layouts_table,
    "What may go wrong": variants_table,
    "Several culprits": several_table,
    "Runs that pass or fail": runs_table,
    "No regression": nothing_table,
}


NAMES = dict(zip(("counts", "rivals", "layouts", "variants", "several", "runs", "nothing"), TABLES, strict=True))
"""For the command line."""


def main() -> None:
    """Simulate everything and replace BISECT.md; `--quick` prints a twentieth of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.speed.bisect")
    parser.add_argument("--quick", action="store_true", help="one history in forty, to stdout")
    parser.add_argument("--table", choices=[*NAMES], help="this table alone, to stdout")
    parser.add_argument("--share", type=int, default=1, help="one history in so many, to stdout")
    options = parser.parse_args()
    quick, titles = options.quick, [NAMES[options.table]] if options.table else [*TABLES]
    begun, facts = time.perf_counter(), machine()
    body = []
    for title in titles:
        body += [f"## {title}", "", *TABLES[title](QUICK if quick else options.share), ""]
    made = f"By `make bench-bisect` on {datetime.datetime.now(datetime.UTC).date()}"
    made += f" in {time.perf_counter() - begun:.0f} s on one core, seeded: {facts.processor}, {facts.system}, "
    made += f"Python {facts.python}."
    head = ["# Finding the commit of a regression, simulated", "", made, "", *INTRODUCTION.splitlines(), ""]
    text = "\n".join([*head, *body])
    if quick or options.table or options.share > 1:
        sys.stdout.write(text)
    else:
        (Path(__file__).parent / "BISECT.md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
