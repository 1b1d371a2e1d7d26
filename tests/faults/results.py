"""Outcomes of cases: stored one by one; RESULTS.md and the figures of docs/promises.md are made from them."""

import datetime
import functools
import json
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from loop.base.documents import hash_files, write_atomic
from tests.conftest import ROOT
from tests.faults import classes

PAGE = Path(__file__).with_name("RESULTS.md")
PROMISES = ROOT / "docs" / "promises.md"
SHOWN = re.compile(r"^Shown by `make bench-faults CLASSES=(\w+)`: .*$", re.MULTILINE)
"""The line of a promise that this file fills in."""
NOT_RUN = "not run yet"
MOST_NAMED = 5  # Broken cases that RESULTS.md names of a class.


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case."""

    module: str
    case: str
    broken: str
    """What broke; empty if the promise held."""
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)
    """Name to a figure that the case measured."""
    seed: int = 0
    date: str = ""
    machine: str = ""
    of: str = ""
    """Hash of the sources that were tested."""


@dataclass(frozen=True)
class Store:
    """A folder of outcomes: a line of JSON each, in a file for each process that ran cases."""

    folder: Path
    seed: int

    def add(self, outcome: Outcome) -> None:
        """Append one outcome to the file of its class."""
        self.folder.mkdir(parents=True, exist_ok=True)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        origin = {"seed": self.seed, "date": today, "machine": machine(), "of": tested()}
        with (self.folder / f"{outcome.module}.jsonl").open("a") as file:
            file.write(json.dumps({**asdict(outcome), **origin}) + "\n")

    def outcomes(self) -> list[Outcome]:
        """The last outcome of each case of this seed on the sources as they are."""
        latest: dict[tuple[str, str], Outcome] = {}
        for path in sorted(self.folder.rglob("*.jsonl")):
            for line in path.read_text().splitlines():
                outcome = Outcome(**json.loads(line))
                if (outcome.seed, outcome.of) == (self.seed, tested()):
                    latest[outcome.module, outcome.case] = outcome
        return list(latest.values())


@functools.cache
def tested() -> str:
    """Hash of loop's own sources."""
    return hash_files((ROOT / "loop").rglob("*.py"), ROOT)[:16]


@functools.cache
def machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release().split('-')[0]}"


def write_pages(outcomes: Sequence[Outcome], seed: int) -> None:
    """RESULTS.md, and the figures in the page of promises."""
    write_atomic(PAGE, "\n".join(page(outcomes, seed)) + "\n")
    write_atomic(PROMISES, filled(PROMISES.read_text(), outcomes))


def page(outcomes: Sequence[Outcome], seed: int) -> Iterable[str]:
    """A table of classes, what broke, and what was measured."""
    yield "# Injected faults"
    yield ""
    yield f"`make bench-faults` wrote this page, with seed {seed}."
    yield "`make bench-faults CLASSES=random_kills` runs one class, `SHARD=2/4` a part, `COUNT=30` the first."
    yield ""
    yield "| Class | Must | Cases | Broken | Run | Machine |"
    yield "|---|---|---|---|---|---|"
    for name, module in classes().items():
        of_class = [outcome for outcome in outcomes if outcome.module == name]
        broken = sum(bool(outcome.broken) for outcome in of_class)
        cells = [f"{module.NAME} (`{name}`)", module.MUST, f"{len(of_class):,}", f"{broken:,}", *_when(of_class)]
        yield f"| {' | '.join(cells)} |" if of_class else f"| {cells[0]} | {module.MUST} | {NOT_RUN} | | | |"
    yield from _figures(outcomes)
    yield from _broken_cases(outcomes)


def _when(outcomes: Sequence[Outcome]) -> list[str]:
    dates, machines = (sorted({getattr(outcome, name) for outcome in outcomes}) for name in ("date", "machine"))
    return [" to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "", ", ".join(machines)]


def _figures(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Median and largest of what cases measured."""
    measured: dict[tuple[str, str], list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            measured.setdefault((outcome.module, name), []).append(value)
    if measured:
        yield from ("", "## Measured", "", "| Class | What | Median | Largest | Cases |", "|---|---|---|---|---|")
    for (module, name), values in sorted(measured.items()):
        values.sort()
        cells = (module, name, f"{values[len(values) // 2]:.3g}", f"{values[-1]:.3g}", f"{len(values):,}")
        yield f"| {' | '.join(cells)} |"


def _broken_cases(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """What broke, the first few of each class."""
    broken = [outcome for outcome in outcomes if outcome.broken]
    if broken:
        yield from ("", "## Broken", "")
    for name in dict.fromkeys(outcome.module for outcome in broken):
        of_class = [outcome for outcome in broken if outcome.module == name]
        for outcome in of_class[:MOST_NAMED]:
            yield f"- `{name}` {outcome.case}: {' '.join(outcome.broken.split())[:300]}"
        if len(of_class) > MOST_NAMED:
            yield f"- `{name}`: {len(of_class) - MOST_NAMED} more"


def filled(text: str, outcomes: Sequence[Outcome]) -> str:
    """The page of promises with the figures of these outcomes."""

    def line(match: re.Match[str]) -> str:
        return f"{match[0].partition(':')[0]}: {summary([row for row in outcomes if row.module == match[1]])}."

    return SHOWN.sub(line, text)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Cases, broken ones and dates in words."""
    if not outcomes:
        return NOT_RUN
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    return f"{len(outcomes):,} cases, {broken:,} broken, {_when(outcomes)[0]}"
