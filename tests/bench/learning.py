"""`make bench-learning`: what the memory of sessions is worth, on simulated and on recorded sequences.

Not a test: the figures go to LEARNING.md. `--quick` is a smoke test of it, a tenth of the sequences, to stdout.
`--sessions FOLDER ...` records the sessions of folders in `recorded_sessions.json`; without it those are replayed.
"""

import argparse
import datetime
import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from loop.base.places import project
from loop.base.stats import beta_quantile, median
from loop.learning.calibration import times
from loop.learning.prediction import Forecast, forecast
from loop.library import definitions
from loop.library.histories import histories
from loop.library.rates import rates
from loop.model.index import SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Predicted
from loop.money.bill import Used, charge
from loop.store import index
from tests.bench.learning_cures import cure_lines
from tests.bench.learning_world import WEATHERS, Weather, World, stated_ratios

SEQUENCES, SESSIONS = 60, 30
AFTER = 5
"""Sessions after which errors count."""
RECORDED = Path(__file__).with_name("recorded_sessions.json")
OUT = Path(__file__).with_name("LEARNING.md")
CARD = rates(project(None, Path.cwd()))
HOURLY = sum(rate.usd_per_hour for rate in CARD.rates if rate.name == CARD.waiting)


@dataclass
class Tally:
    """What came of many predictions: errors are |log(actual / predicted)|."""

    off: list[float] = field(default_factory=list)
    on: list[float] = field(default_factory=list)
    off_usd: list[float] = field(default_factory=list)
    on_usd: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)
    early: list[bool] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """The predictions of another tally as well."""
        for name, values in vars(other).items():
            getattr(self, name).extend(values)


def replay(world: World) -> Tally:
    """One sequence, predicted session by session from those before it; and as if there were none."""
    tally, rows = Tally(), list[SessionRow]()
    sessions = world.sessions(SESSIONS)
    for number, plan in enumerate(sessions):
        predicted = _forecast(world.patterns, rows, plan).priced(HOURLY)
        row = sessions.send(predicted)
        _judge(tally, number, world.patterns, rows, row, predicted)
        rows.append(row)
    return tally


def _forecast(patterns: Sequence[Pattern], rows: Sequence[SessionRow], plan: SessionRow) -> Forecast:
    return forecast(patterns, rows, plan)


def _judge(
    tally: Tally,
    number: int,
    patterns: Sequence[Pattern],
    rows: Sequence[SessionRow],
    row: SessionRow,
    predicted: Predicted,
) -> None:
    (tally.inside if number >= AFTER else tally.early).append(times([row])[0].inside)
    if number < AFTER:
        return
    actual = cost(row)
    without = _forecast(patterns, (), row).priced(HOURLY)
    tally.on.append(error(row.seconds, predicted.seconds))
    tally.off.append(error(row.seconds, without.seconds))
    tally.on_usd.append(error(actual, predicted.usd))
    tally.off_usd.append(error(actual, without.usd))
    tally.widths.append(math.log(predicted.high_s / predicted.low_s))
    tally.last.append(error(row.seconds, rows[-1].seconds))
    tally.middle.append(error(row.seconds, median([one.seconds for one in rows[-10:]])))


def error(actual: float, predicted: float) -> float:
    """Off by a factor of 2 either way is 0.69."""
    return abs(math.log(actual / predicted))


def cost(row: SessionRow) -> float:
    """What the session is charged, by the rules that charge real ones."""
    return sum(one.usd for one in charge(Used(seconds=row.seconds, device=row.device), CARD).charges)


def simulate(weather: Weather, patterns: Sequence[Pattern], ratios: Sequence[float], count: int) -> Tally:
    """Many sequences of one kind."""
    whole = Tally()
    for seed in range(count):
        whole.add(replay(World(patterns, ratios, weather, random.Random(f"{weather.title} {seed}"))))
    return whole


def mean(values: Sequence[float]) -> float:
    """Of a list that is not empty."""
    return sum(values) / len(values)


def row_of(title: str, tally: Tally) -> str:
    """One line of the table."""
    off, on = mean(tally.off), mean(tally.on)
    less = f"{100 * (1 - on / off):.0f}"
    less_usd = f"{100 * (1 - mean(tally.on_usd) / mean(tally.off_usd)):.0f}"
    early = f"{100 * mean(tally.early):.0f}" if tally.early else "-"
    width = math.exp(median(tally.widths) / 2)
    return (
        f"| {title} | {off:.2f} | {mean(tally.last):.2f} | {mean(tally.middle):.2f} | {on:.2f} | {less} % | "
        f"{less_usd} % | {early} % | {share(tally.inside)} | {width:.2f} |"
    )


def share(inside: Sequence[bool]) -> str:
    """Per cent with its 90 % interval."""
    a, b = sum(inside) + 0.5, len(inside) - sum(inside) + 0.5
    low, high = beta_quantile(0.05, a, b), beta_quantile(0.95, a, b)
    return f"{100 * mean(inside):.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


HEADS = (
    "| sequence | error off | last time | median of ten | **error on** | less | less, cost | inside, 1-5 | "
    "**inside, 6 on** | half width |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def recorded_rows(folders: Sequence[Path]) -> dict[str, list[SessionRow]]:
    """Sessions that were run for real, by what they are: of these folders, else those kept beside this file."""
    if folders:
        every = [[row for row in index.rows(folder) if not row.recorded and row.complete] for folder in folders]
        kept = {_title(rows): [slim(row) for row in rows] for rows in every if len(rows) > AFTER}
        RECORDED.write_text(_a_line_a_session(kept))
    if not RECORDED.is_file():
        return {}
    return TypeAdapter(dict[str, list[SessionRow]]).validate_json(RECORDED.read_bytes())


def _a_line_a_session(kept: Mapping[str, Sequence[object]]) -> str:
    parts = (f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in kept.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _title(rows: Sequence[SessionRow]) -> str:
    return " and ".join(sorted({row.plan for row in rows})) + " in turn"


def slim(row: SessionRow) -> dict[str, object]:
    """What a replay needs of a session."""
    keep = {"id", "started", "target", "plan", "device", "status", "seconds", "variants", "emulated", "workloads"}
    keep |= {"threads", "ground", "environment", "runs", "complete"}
    return row.model_dump(mode="json", include=keep)


def replay_recorded(rows: Sequence[SessionRow], patterns: dict[str, Pattern]) -> Tally:
    """Sessions as they came, each predicted from those before it."""
    tally, before = Tally(), list[SessionRow]()
    for number, row in enumerate(rows):
        names = [run.pattern for run in row.runs]
        chain = [patterns[name] for name in names if name in patterns]
        predicted = _forecast(chain, before, row).priced(HOURLY)
        row = row.model_copy(update={"predicted": predicted})
        _judge(tally, number, chain, before, row, predicted)
        before.append(row)
    return tally


def document(count: int, folders: Sequence[Path]) -> Iterator[str]:
    """The whole of LEARNING.md."""
    chosen = project(None, Path.cwd())
    every = {name: read.value for name, read in definitions.patterns(chosen).items()}
    plan = definitions.plans(chosen)["baseline"].value
    chain = [every[name] for name in plan.patterns]
    history = histories()[0]
    ratios = stated_ratios(history)
    yield f"# What memory is worth\n\n`make bench-learning`, {datetime.date.today()}. {INTRODUCTION}\n"
    yield f"## Predicted time and cost, simulated\n\n{count} sequences of {SESSIONS} sessions a row.\n\n{HEADS}"
    whole = Tally()
    for weather in WEATHERS:
        tally = simulate(weather, chain, ratios, count)
        whole.add(tally)
        yield row_of(weather.title, tally)
    yield row_of("**all**", whole)
    yield "\n## Predicted time and cost, sessions run for real"
    yield f"\n{RECORDED_TEXT}\n\n{HEADS}"
    for title, rows in recorded_rows(folders).items():
        yield row_of(f"{len(rows)} sessions: {title}", replay_recorded(rows, every))
    yield "\n" + "\n".join(cure_lines(history, count))
    yield f"\n{BOUNDS}"


INTRODUCTION = (
    "Error: the mean of |log(actual / predicted)| from the sixth session on; 0.69 is a factor of 2. Off: the "
    "authors' estimates, as if no session had ever been run. Last time and median of ten: two simple memories, "
    "without patterns, environments or caches. On: `learning/prediction.py`, fed with the sessions before, and "
    "nothing else. Less: of on against off. Inside: share of sessions whose time was inside their 80 % interval, "
    "with its own 90 % interval; half width: the median factor to either side of the prediction."
)
RECORDED_TEXT = (
    "Sessions of the bundled target, one after the other on a shared machine with two cores while its load went "
    "from 3 to 15 and back and others edited the kernels; replayed from `recorded_sessions.json`. Their authors' "
    "estimates were made on this machine, at rest."
)
BOUNDS = """## What bounds these figures

- The error that is left is the world's own: times scatter by 16 %, a run in twelve is disturbed by a Pareto tail,
  one session in sixteen finds its machine twice as slow. A prediction that knew all but these would still be off.
- A cold cache that nobody could know of (one session in 25) is an error no memory takes away.
- The gain against "off" is as large as authors are wrong. Where their estimates are within 30 % it is what
  the last row before "all" says; in the others they are off as the recorded history's own steps are.
- After a silent upgrade intervals are too narrow until a few sessions have shown it.
- The time to a cure rests on eight recorded durations and on two assumed shares; all stand above."""


def main() -> None:
    """Simulate, replay, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sessions", type=Path, nargs="*", default=())
    chosen = parser.parse_args()
    text = "\n".join(document(SEQUENCES // 10 if chosen.quick else SEQUENCES, chosen.sessions)) + "\n"
    if chosen.quick:
        sys.stdout.write(text)
    else:
        OUT.write_text(text)


if __name__ == "__main__":
    main()
