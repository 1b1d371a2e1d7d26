"""How long will a plan take, and what will it cost? From the author's estimates at first, then from the sessions.

A run of a pattern counts by how like it is to what is asked: the same variants on the same workloads, the same
environment, a cache as warm, and how many such runs have come since. What lies far from the others is drawn in,
so that one disturbed run moves little. The whole is the sum of its patterns, which share what a machine does that
day. How wide intervals have to be is learned too: from how far earlier sessions were from what was predicted.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from loop.base.stats import median
from loop.learning.calibration import widening
from loop.learning.durations import FACTS, SPREAD, Duration, alike, expected, place_of, prior, slowed
from loop.model.index import PatternRun, SessionRow
from loop.model.pattern import Pattern
from loop.model.plan import Predicted
from loop.store.index import LOOKED_BACK

FORGET = 0.8
"""Each later run of the same work makes an earlier one worth so much of what it was."""
OTHER_WORK = 0.1
"""What a run on other variants or workloads is worth."""
OTHER_CACHE = 0.05
"""What a run that compiled is worth for one that will not, and the other way round."""
DRAWN_IN = 2.5
"""Robust standard deviations from the middle, beyond which a logarithm is drawn in."""
SHARED = 0.5
"""Correlation of the logarithms of two patterns' times in one session."""
MEASURED = 0.5
"""Runs, by weight, from which on a prediction is called measured."""
RECENT = 10
"""Sessions that show what loop itself takes."""


@dataclass(frozen=True)
class Work:
    """What is to be run, and where: whatever decides how long a pattern takes."""

    target: str
    device: str
    variants: frozenset[str]
    workloads: frozenset[str]
    threads: int
    place: tuple[str | None, ...]
    """The environment, in the order of its facts."""
    ground: str = ""
    """Hash of the target's files: where it was seen before, builds are in the cache."""
    load: float = 0.0
    """Other programs for each core; 0 where nobody told."""
    cores: int = 1
    bundled: bool = False
    """Whether the target is the one that ships with loop."""

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for the same work, wherever it is done."""
        return self.target, self.device, self.variants, self.workloads, self.threads


@dataclass(frozen=True)
class Forecast:
    """The time of a whole plan, and of each of its patterns."""

    whole: Duration
    widened: float
    """Factor on the half widths of the whole's intervals, from how well earlier ones held."""
    patterns: Mapping[str, Duration]
    steps: Mapping[str, Mapping[str, float]]
    """Seconds of each step that was run before, by pattern."""

    @property
    def interval(self) -> tuple[float, float]:
        """80 % interval of the whole, in seconds."""
        return self.whole.interval(widened=self.widened)

    def priced(self, usd_per_hour: float, least_usd: float = 0.0) -> Predicted:
        """With its cost; `least_usd`: what is charged at least."""
        low, high = self.interval
        usd, low_usd, high_usd = (max(least_usd, s / 3600 * usd_per_hour) for s in (self.whole.seconds, low, high))
        return Predicted(
            seconds=self.whole.seconds,
            low_s=low,
            high_s=high,
            widened=self.widened,
            usd=usd,
            low_usd=low_usd,
            high_usd=high_usd,
        )


def work_of(row: SessionRow) -> Work:
    """What a session ran, and where."""
    return Work(
        target=row.target,
        device=row.device,
        variants=frozenset((*row.variants, *row.emulated)),
        workloads=frozenset(row.workloads),
        threads=row.threads,
        place=place_of(row),
        ground=row.ground,
        load=row.load or 0.0,
    )


def forecast(patterns: Sequence[Pattern], rows: Sequence[SessionRow], work: Work) -> Forecast:
    """The time of `patterns`, each as often as it is listed. `rows`: earlier sessions, oldest first."""
    recent = [(row, work_of(row)) for row in rows[-LOOKED_BACK:] if not row.recorded]
    runs = {pattern.name: list(_weighted(pattern.name, recent, work)) for pattern in patterns}
    found = {pattern.name: _of_pattern(pattern, runs[pattern.name], work) for pattern in patterns}
    whole = together([found[pattern.name] for pattern in patterns])
    own = [row.own_seconds / slowed(row.load) for row, _ in recent if row.complete]
    between = median(own[-RECENT:]) * slowed(work.load) if own else 0.0  # What loop takes beside the steps.
    total = whole.seconds + between
    return Forecast(
        whole=replace(whole, centre=math.log(total), scale=whole.scale * whole.seconds / total),
        widened=widening(rows),
        patterns=found,
        steps={name: _steps(name, mine, work.load) for name, mine in runs.items()},
    )


def is_cold(rows: Iterable[tuple[SessionRow, Work]], work: Work) -> bool:
    """Whether something will be compiled: these files were never built for these variants in this environment."""
    return not any(
        theirs.ground == work.ground
        and theirs.variants >= work.variants
        and alike(theirs.place, work.place) == 1
        and any(run.success for run in row.runs)
        for row, theirs in rows
    )


class Weighted(NamedTuple):
    """An earlier run of a pattern."""

    row: SessionRow
    run: PatternRun
    weight: float
    """What it is worth for the work that is asked about."""
    slowed: float
    """How many times as long it took because of other programs; where nobody told, as many as now."""


def _weighted(name: str, rows: Sequence[tuple[SessionRow, Work]], work: Work) -> Iterator[Weighted]:
    """The whole runs of a pattern, the last first, each with what it is worth."""
    found = [(row, theirs, run) for row, theirs in rows for run in row.runs if run.pattern == name and run.whole]
    compiles, cold = any(run.built for _, _, run in found), is_cold(rows, work)
    later: Counter[object] = Counter()
    for row, theirs, run in reversed(found):
        key = (theirs.kind, theirs.place, run.built)
        weight = alike(theirs.place, work.place) * FORGET ** later[key]
        weight *= 1.0 if theirs.kind == work.kind else OTHER_WORK
        weight *= OTHER_CACHE if compiles and run.built != cold else 1.0
        later[key] += 1
        yield Weighted(row, run, weight, slowed(work.load if row.load is None else row.load))


def _of_pattern(pattern: Pattern, runs: Sequence[Weighted], work: Work) -> Duration:
    """One run of a pattern under the load of now."""
    nvcc = work.place[FACTS.index("cuda")] is not None
    seconds, spread = prior(pattern, bundled=work.bundled, cores=work.cores, nvcc=nvcc)
    idle = expected(seconds, drawn_in([(one.run.seconds / one.slowed, one.weight) for one in runs]), spread)
    return replace(idle, centre=idle.centre + math.log(slowed(work.load)))


def _steps(pattern: str, runs: Sequence[Weighted], load: float) -> dict[str, float]:
    """Seconds of each step that was run before: the weighted median."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in runs:
        for step in one.row.steps:
            if step.pattern == pattern and step.status in ("passed", "failed"):
                found.setdefault(step.step, []).append((step.seconds / one.slowed, one.weight))
    return {name: slowed(load) * weighted_median(pairs) for name, pairs in found.items()}


def weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """The value that half of the weight lies below. Raises ValueError on none."""
    if not pairs:
        raise ValueError("median of nothing")
    half, seen = sum(weight for _, weight in pairs) / 2, 0.0
    for value, weight in sorted(pairs):
        seen += weight
        if seen >= half:
            return value
    return max(value for value, _ in pairs)


def drawn_in(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pairs of seconds and weight; seconds far from the weighted middle are brought nearer (winsorised)."""
    logs = [(math.log(max(seconds, 1e-6)), weight) for seconds, weight in pairs]
    if not logs:
        return []
    middle = weighted_median(logs)
    spread = 1.4826 * weighted_median([(abs(log - middle), weight) for log, weight in logs])
    reach = DRAWN_IN * max(spread, SPREAD)
    return [(math.exp(min(max(log, middle - reach), middle + reach)), weight) for log, weight in logs]


def together(parts: Sequence[Duration]) -> Duration:
    """The sum of several times, as if it were log-normal: the medians add up, the spreads by their shares."""
    total = sum(part.seconds for part in parts)
    shares = [part.seconds / total for part in parts]
    alone = sum((share * part.scale) ** 2 for share, part in zip(shares, parts, strict=True))
    added = sum(share * part.scale for share, part in zip(shares, parts, strict=True))
    return Duration(
        centre=math.log(total),
        scale=math.sqrt((1 - SHARED) * alone + SHARED * added**2),
        freedom=sum(share * part.freedom for share, part in zip(shares, parts, strict=True)),
        weight=sum(share * part.weight for share, part in zip(shares, parts, strict=True)),
    )
