"""Outcomes of cases: written down one by one, and made into RESULTS.md and the figures of docs/promises.md."""

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
    """How one case went."""

    module: str
    case: str
    broken: str
    """What broke; empty where the promise held."""
    seconds: float
    figures: dict[str, float] = field(default_factory=dict)
    """What the case measured beside it, by name; seconds."""
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
        """Write one down."""
        self.folder.mkdir(parents=True, exist_ok=True)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        known = {"seed": self.seed, "date": today, "machine": machine(), "of": tested()}
        with (self.folder / f"{outcome.module}.jsonl").open("a") as file:
            file.write(json.dumps({**asdict(outcome), **known}) + "\n")

    def outcomes(self) -> list[Outcome]:
        """The last outcome of each case of this seed on the sources as they are."""
        found: dict[tuple[str, str], Outcome] = {}
        for path in sorted(self.folder.rglob("*.jsonl")):
            for line in path.read_text().splitlines():
                one = Outcome(**json.loads(line))
                if (one.seed, one.of) == (self.seed, tested()):
                    found[one.module, one.case] = one
        return list(found.values())


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
        mine = [one for one in outcomes if one.module == name]
        broken = sum(bool(one.broken) for one in mine)
        cells = [f"{module.NAME} (`{name}`)", module.MUST, f"{len(mine):,}", f"{broken:,}", *_when(mine)]
        yield f"| {' | '.join(cells)} |" if mine else f"| {cells[0]} | {module.MUST} | {NOT_RUN} | | | |"
    yield from _measured(outcomes)
    yield from _named(outcomes)


def _when(mine: Sequence[Outcome]) -> list[str]:
    dates, machines = (sorted({getattr(one, name) for one in mine}) for name in ("date", "machine"))
    return [" to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "", ", ".join(machines)]


def _measured(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Median and largest of what cases measured."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in outcomes:
        for name, value in one.figures.items():
            found.setdefault((one.module, name), []).append(value)
    if found:
        yield from ("", "## Measured", "", "| Class | What | Median | Largest | Cases |", "|---|---|---|---|---|")
    for (module, name), values in sorted(found.items()):
        values.sort()
        cells = (module, name, f"{values[len(values) // 2]:.3g}", f"{values[-1]:.3g}", f"{len(values):,}")
        yield f"| {' | '.join(cells)} |"


def _named(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """What broke, the first few of each class."""
    broken = [one for one in outcomes if one.broken]
    if broken:
        yield from ("", "## Broken", "")
    for name in dict.fromkeys(one.module for one in broken):
        mine = [one for one in broken if one.module == name]
        for one in mine[:MOST_NAMED]:
            yield f"- `{name}` {one.case}: {' '.join(one.broken.split())[:300]}"
        if len(mine) > MOST_NAMED:
            yield f"- `{name}`: {len(mine) - MOST_NAMED} more"


def filled(text: str, outcomes: Sequence[Outcome]) -> str:
    """The page of promises with the figures of these outcomes."""

    def line(found: re.Match[str]) -> str:
        return f"{found[0].partition(':')[0]}: {shown([one for one in outcomes if one.module == found[1]])}."

    return SHOWN.sub(line, text)


def shown(mine: Sequence[Outcome]) -> str:
    """Cases, broken ones and dates in words."""
    if not mine:
        return NOT_RUN
    broken = sum(bool(one.broken) for one in mine)
    return f"{len(mine):,} cases, {broken:,} broken, {_when(mine)[0]}"
