"""Histories of commits with known culprits, and searches through them: for the rules' tests and benchmark."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loop.bisect.search import Observations, ProbeRequest, SearchEnd, SearchProblem, next_move
from loop.model.bisect import Probe

STEP = math.log1p(0.1)  # Slower by a tenth.
Noises = Callable[[random.Random], float]  # One draw of a noise with standard deviation 1.
Outcome = Sequence[float] | str  # What was observed; or why the commit cannot be tried.
Observer = Callable[[ProbeRequest], Outcome]


def probe_of(asked: ProbeRequest, outcome: Outcome, status: str = "broken") -> Probe:
    """What is kept of a try."""
    ends = {"commit": str(asked.commit), "against": str(asked.against), "why": asked.why, "claim": asked.claim}
    if isinstance(outcome, str):
        return Probe.model_validate({**ends, "status": status, "reason": outcome}, strict=False)
    return Probe.model_validate({**ends, "status": "measured", "values": tuple(outcome)}, strict=False)


def normal(rng: random.Random) -> float:
    """As the rules suppose it."""
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
    """Commits 0 to `last`, some of which made the kernel slower for good."""

    last: int
    steps: Mapping[int, float]
    """Commit to how much slower it made it, as a log ratio."""
    sd: float
    """Of one single measurement."""
    seed: str
    noise: Noises = normal
    layout_sd: float = 0.0
    """How far builds of the same source differ."""
    layout: Noises = normal
    """In which way they do."""
    alike: int = 1
    """Of so many commits in a row all but the first change nothing."""
    drift_sd: float = 0.0
    """How far the machine's speed moves from one measurement to the next."""
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

    def observe(self, asked: ProbeRequest) -> Outcome:
        """What comes of a try: pairs in confirmations, or where the search is paired; else single log times."""
        if asked.commit in self.unbuilt:
            return "does not build"
        return [self.pair(asked) for _ in range(asked.count)]

    def pair(self, asked: ProbeRequest) -> float:
        """One log ratio to the reference, measured next to it."""
        return self.single(asked.commit) - self.single(asked.against)

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

    def observe(asked: ProbeRequest) -> Outcome:
        if asked.commit in unbuilt:
            return "does not build"
        return [float(rng.random() >= rates[asked.commit >= culprit]) for _ in range(asked.count)]

    return observe


def problem(last: int, **fields: object) -> SearchProblem:
    """Commits alike."""
    names = tuple(map(str, range(last + 1)))
    return SearchProblem(names, names, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Done:
    """A search, and what it took."""

    answer: SearchEnd
    probes: tuple[Probe, ...]
    search: int
    """Single measurements, or runs, of the search; a pair counts as two."""
    confirm: int
    """The same, of confirmations."""
    builds: int
    """Commits that were built."""


def done(asked: SearchProblem, observe: Observer, probes: Sequence[Probe] = ()) -> Done:
    """Search to the end."""
    told = list(probes)
    while isinstance(wanted := next_move(asked, told), ProbeRequest):
        told.append(probe_of(wanted, observe(wanted)))
    each = 2 if asked.metric == "latency" else 1
    every = sum(each * len(probe.values) for probe in told)
    confirmed = sum(each * len(probe.values) for probe in told if probe.claim)
    return Done(wanted, tuple(told), every - confirmed, confirmed, len(Observations(asked, told).built_positions))


def latency(last: int, culprit: int, sd: float = 0.02, step: float = STEP, **terms: object) -> Done:
    """A search through a history with one culprit."""
    history = History(last, {culprit: step}, sd, f"{last} {culprit} {sd} {step}", **terms)  # type: ignore[arg-type]
    return done(problem(last), history.observe)


def correctness(last: int, culprit: int, rates: tuple[float, float] = (0.0, 1.0), seed: str = "") -> Done:
    """The same of runs."""
    return done(problem(last, metric="correctness"), runs_of(last, culprit, rates, f"{last} {culprit} {seed}"))


def named(found: Done) -> tuple[str, tuple[int, ...]]:
    """What is said, and who is blamed."""
    return found.answer.outcome, found.answer.culprits
