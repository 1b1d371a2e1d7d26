"""`make bench-bisect`: how often the search names the right commit, on simulated histories.

Not a test: the figures go to BISECT.md. `--share N` takes one history in N, `--table` one table, both to stdout.
"""

import argparse
import datetime
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.machine.machine import machine
from tests.bisect.simulated import History, Hunt, heavy, hunt, problem, runs_of, slow_at_times, with_outliers

SOME, MANY = 120, 400  # Histories of a row; of the row whose rate of wrong names matters most.


@dataclass(frozen=True)
class Row:
    """A row of a table: histories of 64 or 1,024 commits, of which one is slower."""

    name: str
    last: int
    sd: float
    slowdown: float
    layout_sd: float = 0.0
    places: tuple[int, ...] = ()
    """Commits that may have the step; empty: any commit."""
    terms: tuple[tuple[str, object], ...] = ()
    """Other fields of `History`."""
    share: int = 1
    """Divides the count of histories, for rows that are slow to simulate."""
    count: int = SOME


PLAIN = (
    Row("", 64, 0.02, 0.30),
    Row("", 64, 0.02, 0.10),
    Row("", 64, 0.05, 0.10),
    Row("", 64, 0.02, 0.03),
    Row("", 1024, 0.02, 0.30),
    Row("", 1024, 0.02, 0.10),
    Row("", 1024, 0.05, 0.10, share=2),
    Row("", 1024, 0.02, 0.03, share=4),
)
FOURTHS = tuple(range(4, 65, 4))
LAYOUTS = (
    Row("", 64, 0.02, 0.03, 0.005),
    Row("", 64, 0.02, 0.03, 0.01, count=MANY),
    Row("", 64, 0.02, 0.03, 0.02),
    Row("", 64, 0.02, 0.05, 0.005),
    Row("", 64, 0.02, 0.05, 0.01),
    Row("", 64, 0.02, 0.05, 0.02),
    Row("", 64, 0.02, 0.10, 0.005),
    Row("", 64, 0.02, 0.10, 0.01),
    Row("", 64, 0.02, 0.10, 0.02),
    Row("", 64, 0.005, 0.03, 0.01),
    Row("offsets of Student's t, 3 degrees", 64, 0.02, 0.03, 0.01, terms=(("layout", heavy),)),
    Row("binaries of four commits alike, untold", 64, 0.02, 0.03, 0.01, FOURTHS, (("alike", 4),)),
    Row("binaries of four commits alike, untold", 64, 0.02, 0.05, 0.02, FOURTHS, (("alike", 4),)),
    Row("binaries of four commits alike, untold", 64, 0.02, 0.10, 0.01, FOURTHS, (("alike", 4),)),
    Row("20 % broken builds", 64, 0.02, 0.03, 0.01, terms=(("broken", 0.2),), share=2),
    Row("step in the first or last two", 64, 0.02, 0.03, 0.01, places=(1, 2, 63, 64), share=2),
    Row("no step", 64, 0.02, 0.0, 0.01, share=2),
)
WRONG = (
    Row("Student's t noise, 3 degrees", 64, 0.05, 0.10, terms=(("noise", heavy),)),
    Row("10 % outliers, 10 sigma both ways", 64, 0.02, 0.10, terms=(("noise", with_outliers),)),
    Row("10 % outliers, 10 sigma both ways", 64, 0.05, 0.10, terms=(("noise", with_outliers),), share=2),
    Row("10 % outliers, all slower", 64, 0.05, 0.10, terms=(("noise", slow_at_times),), share=2),
    Row("speed drifts 2 % a measurement", 64, 0.02, 0.10, terms=(("drift_sd", 0.02),)),
    Row("20 % broken builds", 64, 0.02, 0.10, terms=(("broken", 0.2),)),
    Row("20 % broken builds", 64, 0.05, 0.10, terms=(("broken", 0.2),)),
    Row("no step", 64, 0.005, 0.0),
    Row("no step", 64, 0.05, 0.0),
)
Searches = list[tuple[Hunt, frozenset[int]]]  # Each with its true culprits.


def search_of(row: Row, number: int) -> tuple[Hunt, frozenset[int]]:
    """The search through history `number` of a row, and the true culprits."""
    seed = f"{row.name} {row.last} {row.sd} {row.slowdown} {row.layout_sd} {number}"
    culprit = random.Random(seed).choice(row.places or range(1, row.last + 1))
    steps = {culprit: math.log1p(row.slowdown)} if row.slowdown else {}
    terms = {"layout_sd": row.layout_sd, **dict(row.terms)}
    history = History(row.last, steps, row.sd, seed, **terms)  # type: ignore[arg-type]
    return hunt(problem(row.last), history.observe), frozenset(steps)


def range_holds_culprit(search: Hunt, truth: frozenset[int]) -> bool:
    """Whether the answer is a range that holds a culprit."""
    run = search.answer.range
    return run is not None and any(run[0] <= culprit <= run[1] for culprit in truth)


def counts(searches: Searches) -> str:
    """Cells of a row: mean measurements and builds of a search, and the share of each kind of answer."""
    size = len(searches)
    means = [
        sum(number) / size for number in zip(*((o.search, o.confirm, o.builds) for o, _ in searches), strict=True)
    ]
    named = sum(bool(o.answer.culprits) and truth.issuperset(o.answer.culprits) for o, truth in searches)
    wrong = sum(not truth.issuperset(o.answer.culprits) for o, truth in searches)
    ranges = sum(o.answer.range is not None for o, _ in searches)
    good = sum(range_holds_culprit(o, truth) for o, truth in searches)
    rates = [100 * share / size for share in (named, wrong, good, ranges - good, size - named - wrong - ranges)]
    cells = (f"{size}", *(f"{mean:.1f}" for mean in means), *(f"{max(rate, 0):.1f}" for rate in rates))
    return " | ".join(cells)


HEAD = "histories | search | confirm | builds | named | wrong | range with it | range without | open |"
RULE = "--:|" * 9


def rows_table(rows: tuple[Row, ...]) -> Callable[[int], Iterator[str]]:
    def lines(share: int) -> Iterator[str]:
        yield f"| | N | sigma | step | layout | {HEAD}"
        yield f"|:--|--:|--:|--:|--:|{RULE}"
        for row in rows:
            begun = time.perf_counter()
            number_of = max(row.count // row.share // share, 3)
            cells = counts([search_of(row, number) for number in range(number_of)])
            sys.stderr.write(
                f"{row.name} {row.last} {row.sd} {row.slowdown}: {time.perf_counter() - begun:.0f} s\n"
            )
            kind = f"{row.name} | {row.last} | {row.sd:.1%} | {row.slowdown:.0%} | {row.layout_sd:.1%}"
            yield f"| {kind} | {cells} |"

    return lines


SEVERAL = ((0.15, 0.15), (0.2, 0.1), (0.05, 0.05), (0.1, 0.1, 0.1), (0.3, 0.04), (0.2, -0.1), (-0.2, 0.3))


def several_of(slowdowns: tuple[float, ...], number: int) -> tuple[Hunt, frozenset[int]]:
    """The search through a history with these steps, in this order; steps that slow down are culprits."""
    rng = random.Random(f"{slowdowns} {number}")
    places = sorted(rng.sample(range(1, 65), len(slowdowns)))
    steps = dict(zip(places, map(math.log1p, slowdowns), strict=True))
    history = History(64, steps, 0.02, f"{slowdowns} {number}")
    return hunt(problem(64), history.observe), frozenset(at for at, step in steps.items() if step > 0)


def several_table(share: int) -> Iterator[str]:
    """Several steps in 64 commits, sigma 2 %. *All*: exactly the culprits are named."""
    yield f"| Steps | all | {HEAD}"
    yield f"|:--|--:|{RULE}"
    for slowdowns in SEVERAL:
        searches = [several_of(slowdowns, number) for number in range(max(SOME // share, 3))]
        exact = sum(frozenset(search.answer.culprits) == truth for search, truth in searches)
        steps = ", ".join(f"{step:+.0%}" for step in slowdowns)
        yield f"| {steps} | {100 * exact / len(searches):.1f} | {counts(searches)} |"


RATES = ((0.0, 1.0), (0.0, 0.9), (0.0, 0.5), (0.0, 0.2), (0.05, 0.5))


def runs_search(last: int, rates: tuple[float, float], number: int) -> tuple[Hunt, frozenset[int]]:
    """The search through a history whose runs fail at these rates before the culprit and from it on."""
    seed = f"{last} {rates} {number}"
    culprit = random.Random(seed).randint(1, last)
    search = hunt(problem(last, metric="correctness"), runs_of(last, culprit, rates, seed))
    return search, frozenset({culprit})


def runs_table(share: int) -> Iterator[str]:
    """Correctness: runs that pass or fail."""
    yield f"| N | fails before | after | {HEAD}"
    yield f"|--:|--:|--:|{RULE}"
    for last in (64, 1024):
        for rates in RATES:
            searches = [runs_search(last, rates, number) for number in range(max(SOME // share, 3))]
            yield f"| {last} | {rates[0]:g} | {rates[1]:g} | {counts(searches)} |"


INTRODUCTION = """\
A history has N commits after the good end, one of which, at random, makes the kernel slower by the step for good.
A measurement is a log time that scatters by sigma about its commit's level. The search observes pairs with the
good end. A pair counts as two measurements, and its log ratio scatters by 1.41 sigma. *Layout*: each build has an
offset of its own, the same in each of its measurements, with this standard deviation. Nobody tells the search.

- *Search*: measurements (runs, for correctness) of the search, its ends included. *Confirm*: of confirmations.
- *Named*: only culprits are named. *Wrong*: another commit is named.
- *Range*: commits that cannot be told apart, with the culprit among them, or without. *Open*: nobody is named.
"""
TABLES: dict[str, tuple[str, Callable[[int], Iterator[str]]]] = {
    "plain": ("One slower commit", rows_table(PLAIN)),
    "layouts": ("Builds differ on their own", rows_table(LAYOUTS)),
    "wrong": ("What may go wrong", rows_table(WRONG)),
    "several": ("Several culprits", several_table),
    "runs": ("Runs that pass or fail", runs_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bisect")
    parser.add_argument("--table", choices=[*TABLES], help="this table alone, to stdout")
    parser.add_argument("--share", type=int, default=1, help="one history in so many, to stdout")
    options = parser.parse_args()
    body = []
    for title, table in [TABLES[options.table]] if options.table else TABLES.values():
        body += [f"## {title}", "", *table(options.share), ""]
    facts = machine()
    origin = f"By `make bench-bisect` on {datetime.datetime.now(datetime.UTC).date()}, seeded: {facts.processor}, "
    origin += f"Python {facts.python}."
    text = "\n".join(["# Finding the commit of a regression, simulated", "", origin, "", INTRODUCTION, *body])
    if options.table or options.share > 1:
        sys.stdout.write(text)
    else:
        (Path(__file__).parent / "BISECT.md").write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
