"""Histories of commits with known culprits, and searches through them: for the rules' tests and benchmark."""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from loop.bisect.bisection import next_move
from loop.bisect.journal import read
from loop.bisect.model import Asked, Broken, Commit, Conclusion, Costs, Noise, Outcome, Problem, Try
from loop.bisect.rounds import enough, next_round, taken
from loop.model.bisect import Claim

STEP = math.log1p(0.1)
"""Slower by a tenth."""
Noises = Callable[[random.Random], float]
"""One draw of a noise with standard deviation 1."""
Observer = Callable[[Try], Outcome]


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
    paired: bool = False
    """The search is answered with pairs."""
    unbuilt: frozenset[int] = field(init=False)
    """Those commits."""

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        between = range(1, self.last)
        self.unbuilt = frozenset(commit for commit in between if self._rng.random() < self.broken)
        self._layouts: dict[tuple[int, int], float] = {}
        self._speed = 0.0

    def observe(self, asked: Try) -> Outcome:
        """What comes of a try: pairs in confirmations, or where the search is paired; else single log times."""
        if asked.commit in self.unbuilt:
            return Broken("does not build")
        if asked.claim or self.paired:
            return until_enough(asked, lambda: self.pair(asked))
        return [self.single(asked.commit, asked.relink) for _ in range(asked.batch)]

    def pair(self, asked: Try) -> float:
        """One log ratio to the reference, measured next to it."""
        relink = asked.relink if asked.claim else 0
        apart = self._level(asked.commit, asked.relink) - self._level(asked.against, relink)
        return apart + self.sd * (self.noise(self._rng) - self.noise(self._rng))

    def single(self, commit: int, relink: int = 0) -> float:
        """One log time."""
        self._speed += self.drift_sd * self._rng.gauss(0, 1)
        return self._level(commit, relink) + self._speed + self.sd * self.noise(self._rng)

    def kernel(self, commit: int) -> int:
        """Commits with the same one are the same program."""
        return commit // self.alike

    def _level(self, commit: int, relink: int) -> float:
        key = self.kernel(commit), relink
        if self.layout_sd and key not in self._layouts:
            self._layouts[key] = self.layout_sd * self.layout(self._rng)
        level = math.fsum(step for at, step in self.steps.items() if at <= commit)
        return level + self._layouts.get(key, 0.0)


def until_enough(asked: Try, observe: Callable[[], float]) -> list[float]:
    """As many observations as are asked for, or as are enough."""
    values: list[float] = []
    while len(values) < asked.batch and not enough(values, asked.stop, asked.claim, asked.relink):
        values.append(observe())
    return values


def runs_of(last: int, culprit: int, rates: tuple[float, float], seed: str, broken: float = 0.0) -> Observer:
    """Runs that pass or fail, with these failure rates before and from the culprit on."""
    rng = random.Random(seed)
    unbuilt = {commit for commit in range(1, last) if rng.random() < broken}

    def observe(asked: Try) -> Outcome:
        if asked.commit in unbuilt:
            return Broken("does not build")
        return [rng.random() >= rates[asked.commit >= culprit] for _ in range(asked.batch)]

    return observe


def problem(last: int, noise: Noise | None = None, **fields: object) -> Problem:
    """Commits alike, observed one by one; a pair costs two."""
    how = noise or Noise(paired=False)
    costs = Costs(measure=2.0 if how.paired else 1.0)
    return Problem(tuple(Commit(name=str(number)) for number in range(last + 1)), costs=costs, noise=how, **fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Done:
    """A search, and what it took."""

    answer: Conclusion
    journal: tuple[Asked, ...]
    search: int
    """Single measurements, or runs, of the search; a pair counts as two."""
    confirm: int
    """The same, of confirmations."""
    builds: int
    """Commits that were built."""
    relinks: int
    """Relinked builds."""


def done(asked: Problem, observe: Observer, journal: Sequence[Asked] = ()) -> Done:
    """Search to the end."""
    told = list(journal)
    while isinstance(wanted := next_move(asked, told), Try):
        told.append(Asked(wanted, observe(wanted)))
    built = read(asked, told).built
    relinked = sum(relink > 0 for _, relink in built)
    return Done(wanted, tuple(told), *_counts(asked, told), len(built) - relinked, relinked)


@dataclass(frozen=True)
class InRounds:
    """A search by rounds, and what it took."""

    answer: Conclusion
    rounds: tuple[tuple[Asked, ...], ...]
    """What came of each, whether it counted or not."""
    wall: float
    """Time, in single measurements: a round lasts as long as its longest probe, its build included."""


def in_rounds(asked: Problem, observe: Observer, width: int) -> InRounds:
    """Search to the end, so many commits at a time."""
    told, made, wall = list[Asked](), list[tuple[Asked, ...]](), 0.0
    while not isinstance(wanted := next_round(asked, told, width), Conclusion):
        built = {0, *(one.asked.commit for done in made for one in done)}
        answers = tuple(Asked(one, observe(one)) for one in wanted)
        wall += max(_lasts(asked, one, built) for one in answers)
        told += [one for _, one in taken(asked, told, answers)]
        made.append(answers)
    return InRounds(wanted, tuple(made), wall)


def _lasts(asked: Problem, one: Asked, built: Collection[int]) -> float:
    """The time of a probe, whose two builds are made at the same time."""
    building = asked.costs.build if {one.asked.commit, one.asked.against} - {*built} else 0.0
    return building + asked.costs.measure * (len(one.outcome) if isinstance(one.outcome, list) else 0)


def _counts(asked: Problem, told: Sequence[Asked]) -> tuple[int, int]:
    searched = confirmed = 0
    for one in told:
        count = len(one.outcome) if isinstance(one.outcome, list) else 0
        if one.asked.claim:
            confirmed += count * (2 if asked.metric == "latency" else 1)
        else:
            searched += count * (2 if asked.metric == "latency" and asked.noise.paired else 1)
    return searched, confirmed


def claim(**fields: float) -> Claim:
    """A claim, the first of its search unless told otherwise."""
    return Claim(**{"number": 1, **fields})


def latency(
    last: int, culprit: int, sd: float = 0.02, step: float = STEP, noise: Noise | None = None, **terms: object
) -> Done:
    """A search through a history with one culprit."""
    history = History(last, {culprit: step}, sd, f"{last} {culprit} {sd} {step}", **terms)  # type: ignore[arg-type]
    return done(problem(last, noise or Noise(paired=history.paired)), history.observe)


def correctness(last: int, culprit: int, rates: tuple[float, float] = (0.0, 1.0), seed: str = "") -> Done:
    """The same of runs."""
    return done(problem(last, metric="correctness"), runs_of(last, culprit, rates, f"{last} {culprit} {seed}"))


def named(found: Done) -> tuple[str, tuple[int, ...]]:
    """What is said, and who is blamed."""
    return found.answer.outcome, found.answer.culprits
