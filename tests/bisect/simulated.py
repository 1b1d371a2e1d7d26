"""Histories of commits with known culprits, and searches through them, for tests and benchmark of the rules."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loop.bisect.search import Observations, ProbeRequest, SearchEnd, SearchProblem, next_move
from loop.model.bisect import Probe

STEP = math.log1p(0.1)  # Slower by a tenth.
Noises = Callable[[random.Random], float]  # One draw of a noise with standard deviation 1.
Outcome = Sequence[float] | str  # Observed values, or the reason why the commit cannot be tried.
Observer = Callable[[ProbeRequest], Outcome]


def probe_of(query: ProbeRequest, outcome: Outcome, status: str = "broken") -> Probe:
    """The stored probe of a try and its outcome."""
    ends = {"commit": str(query.commit), "against": str(query.against), "why": query.why, "claim": query.claim}
    if isinstance(outcome, str):
        return Probe.model_validate({**ends, "status": status, "reason": outcome}, strict=False)
    return Probe.model_validate({**ends, "status": "measured", "values": tuple(outcome)}, strict=False)


def normal(rng: random.Random) -> float:
    """Normal noise, as the rules assume."""
    return rng.gauss(0, 1)


def with_outliers(rng: random.Random) -> float:
    """One in ten is ten times as far away."""
    return rng.gauss(0, 10 if rng.random() < 0.1 else 1)


def slow_at_times(rng: random.Random) -> float:
    """One in ten is slower, by some eight standard deviations."""
    return abs(rng.gauss(0, 10)) if rng.random() < 0.1 else rng.gauss(0, 1)


def heavy(rng: random.Random) -> float:
    """Student's t with three degrees of freedom, at standard deviation 1."""
    return rng.gauss(0, 1) / math.sqrt(rng.gammavariate(1.5, 2) / 3) / math.sqrt(3)


@dataclass
class History:
    """Commits 0 to `last`; some of them made the kernel slower."""

    last: int
    steps: Mapping[int, float]
    """Commit to the slowdown that it caused, as a log ratio."""
    sd: float
    """Standard deviation of one measurement."""
    seed: str
    noise: Noises = normal
    layout_sd: float = 0.0
    """Standard deviation between builds of the same source."""
    layout: Noises = normal
    """Distribution of the differences between builds."""
    alike: int = 1
    """Length of runs of commits in which only the first changes the program."""
    drift_sd: float = 0.0
    """Standard deviation of the machine's drift from one measurement to the next."""
    broken: float = 0.0
    """Share of the commits between the ends that cannot be built."""
    unbuilt: frozenset[int] = field(init=False)
    """Those commits."""

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        between = range(1, self.last)
        self.unbuilt = frozenset(commit for commit in between if self._rng.random() < self.broken)
        self._layouts: dict[int, float] = {}
        self._speed = 0.0

    def observe(self, query: ProbeRequest) -> Outcome:
        """The outcome of a try: log ratios of pairs; a reason for a commit that does not build."""
        if query.commit in self.unbuilt:
            return "does not build"
        return [self.pair(query) for _ in range(query.count)]

    def pair(self, query: ProbeRequest) -> float:
        """One log ratio to the reference, measured next to it."""
        return self.single(query.commit) - self.single(query.against)

    def single(self, commit: int) -> float:
        """One log time."""
        self._speed += self.drift_sd * self._rng.gauss(0, 1)
        return self._level(commit) + self._speed + self.sd * self.noise(self._rng)

    def kernel(self, commit: int) -> int:
        """Commits with the same one are the same program."""
        return commit // self.alike

    def _level(self, commit: int) -> float:
        key = self.kernel(commit)
        if self.layout_sd and key not in self._layouts:
            self._layouts[key] = self.layout_sd * self.layout(self._rng)
        level = math.fsum(step for at, step in self.steps.items() if at <= commit)
        return level + self._layouts.get(key, 0.0)


def runs_of(last: int, culprit: int, rates: tuple[float, float], seed: str, broken: float = 0.0) -> Observer:
    """Runs that pass or fail, with these failure rates before and from the culprit on."""
    rng = random.Random(seed)
    unbuilt = {commit for commit in range(1, last) if rng.random() < broken}

    def observe(query: ProbeRequest) -> Outcome:
        if query.commit in unbuilt:
            return "does not build"
        return [float(rng.random() >= rates[query.commit >= culprit]) for _ in range(query.count)]

    return observe


def problem(last: int, **fields: object) -> SearchProblem:
    """A search problem of commits 0 to `last`, each with a program of its own."""
    names = tuple(map(str, range(last + 1)))
    return SearchProblem(names, names, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Hunt:
    """A finished search, with its answer, probes and costs."""

    answer: SearchEnd
    probes: tuple[Probe, ...]
    search: int
    """Single measurements, or runs, of the search; a pair counts as two."""
    confirm: int
    """The same, of confirmations."""
    builds: int
    """Commits that were built."""


def hunt(terms: SearchProblem, observe: Observer, probes: Sequence[Probe] = ()) -> Hunt:
    """Search to the end."""
    tried = list(probes)
    while isinstance(move := next_move(terms, tried), ProbeRequest):
        tried.append(probe_of(move, observe(move)))
    weight = 2 if terms.metric == "latency" else 1
    total = sum(weight * len(probe.values) for probe in tried)
    confirmed = sum(weight * len(probe.values) for probe in tried if probe.claim)
    return Hunt(move, tuple(tried), total - confirmed, confirmed, len(Observations(terms, tried).built_positions))


def latency(last: int, culprit: int, sd: float = 0.02, step: float = STEP, **terms: object) -> Hunt:
    """A search through a history with one culprit."""
    history = History(last, {culprit: step}, sd, f"{last} {culprit} {sd} {step}", **terms)  # type: ignore[arg-type]
    return hunt(problem(last), history.observe)


def correctness(last: int, culprit: int, rates: tuple[float, float] = (0.0, 1.0), seed: str = "") -> Hunt:
    """The same of runs."""
    return hunt(problem(last, metric="correctness"), runs_of(last, culprit, rates, f"{last} {culprit} {seed}"))


def outcome_of(search: Hunt) -> tuple[str, tuple[int, ...]]:
    """Outcome and culprits of a search."""
    return search.answer.outcome, search.answer.culprits
