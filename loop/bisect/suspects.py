"""What a search over commits asks, is told and answers; its state, read from the journal. Pure: others measure."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

TOUCHED = 10.0
"""Prior weight of a commit that touches the kernel's files, where others have 1."""
Metric = Literal["latency", "correctness"]
Key = tuple[int, int, int]
"""A confirmation: culprit, parent, and the number of its claim."""


@dataclass(frozen=True)
class Commit:
    """A commit of the first-parent line, as far as a search has to know it."""

    weight: float = 1.0
    """How likely it brought the regression, before anything is measured: relative to the others."""
    group: str = ""
    """Hash of its build inputs. Commits with the same one are the same program; empty: unlike any other."""
    built: bool = False
    """Its build lies in the cache."""


@dataclass(frozen=True)
class Costs:
    """What things cost, all in units of one single measurement."""

    measure: float = 1.0
    """One observation; a pair is 2."""
    build: float = 20.0
    """A build that is not in the cache."""
    relink: float = 3.0
    """The same objects linked in another order."""


@dataclass(frozen=True)
class Noise:
    """How latencies are measured."""

    paired: bool = True
    """Observations are log ratios to the good end's binary in the same pair: the level of the good end is 0."""
    relinks: int = 0
    """So many relinked builds of a commit may be asked for by the search, and as many by a confirmation.

    0: nothing is relinked."""
    pilot_sd: float = 0.0
    """Standard deviation of observations of the same kind, where some were made before: of a session's null
    control."""
    pilot_freedom: int = 0
    """Its degrees of freedom: blocks less one. 0: there was none."""


@dataclass(frozen=True)
class Problem:
    """What is searched: commits from the good end to the bad end."""

    commits: tuple[Commit, ...]
    """Oldest first; the first is the good end, the last the bad one."""
    metric: Metric = "latency"
    costs: Costs = Costs()
    noise: Noise = Noise()
    limit: int = 3000
    """Observations after which the search gives up."""

    @functools.cached_property
    def line(self) -> "Line":
        """The history as positions, as far as it is known before anything is built."""
        return line(self.commits)

    @functools.cached_property
    def cached(self) -> frozenset[int]:
        """Positions whose build lies in the cache, on that line."""
        return frozenset(self.line.place[index] for index, commit in enumerate(self.commits) if commit.built)


@dataclass(frozen=True)
class Claim:
    """What a confirmation has to show. Fixed before its first observation, so that these stay fresh."""

    number: int
    """Which confirmation of this search it is, from 1. 0: a confirmed step is only measured for its size."""
    above: float = 0.0
    """Log ratio of culprit to parent that has to be exceeded."""
    below: float = 0.0
    """Log ratio that a culprit would reach: once less than that is evident, it is none."""
    clip: float = math.inf
    """Log ratios further than this from `above` count as if they were just there."""
    variance: float = 1.0
    """Prior variance of the effect, in units of the noise."""
    ratio: float = 0.0
    """Variance between relinked pairs over that within them."""
    rates: tuple[float, float] = (0.0, 0.0)
    """Of correctness: failure rates expected of culprit and parent."""


@dataclass(frozen=True)
class Try:
    """Build this commit unless it is there, and observe it so many times."""

    commit: int
    """Index into the commits of the problem."""
    batch: int
    """Observations that are asked for; fewer may come."""
    why: str
    """For the table of probes."""
    against: int = 0
    """Latency: the commit whose binary is the reference in the same pair; 0 in the search."""
    relink: int = 0
    """0: the build as it is. From 1 on: relinked with this shuffle; in a confirmation the reference with the same,
    while in the search it stays the build as it is."""
    claim: Claim | None = None
    """Set in a confirmation: fresh observations that the search does not use."""


@dataclass(frozen=True)
class Broken:
    """The commit cannot be tested: it does not build, or its binary does not run."""

    reason: str
    commit: int | None = None
    """Which one, where a confirmation asked for two; by itself the one that was tried."""


@dataclass(frozen=True)
class Lost:
    """The observation did not come about for a reason that says nothing of the commit."""

    reason: str


@dataclass(frozen=True)
class Same:
    """Once built, it turned out to be the same device code as that of another commit."""

    commit: int


Values = Sequence[float] | Sequence[bool]
"""Latency: log(time of the commit / time of the reference), above 0 is slower. Correctness: whether each run
passed."""
Outcome = Values | Broken | Lost | Same


@dataclass(frozen=True)
class Asked:
    """A line of the journal: what was asked, and what came."""

    asked: Try
    outcome: Outcome


@dataclass(frozen=True)
class Found:
    """A culprit, or a run of commits of which one is."""

    first: int
    """Index of the culprit; where commits cannot be told apart, of the first of them."""
    last: int
    """The same as `first`, or the last commit of the run."""
    evidence: float
    """e-value of the confirmation."""
    step: float
    """Latency: how much slower than its parent, as a log ratio. Correctness: rise of the failure rate."""


@dataclass(frozen=True)
class Answer:
    """What a search came to."""

    outcome: Literal["culprit", "several", "range", "no_regression", "inconclusive"]
    culprits: tuple[int, ...]
    """Indices of the commits that are blamed, each confirmed."""
    range: tuple[int, int] | None
    """First and last of commits that cannot be told apart, where that is the answer."""
    posterior: tuple[float, ...]
    """Probability of each commit; of several culprits, each part of the history has its own whole."""
    why: str
    found: tuple[Found, ...] = ()
    swapped: bool = False
    """The good end is the one that regresses."""


@dataclass(frozen=True)
class Line:
    """The history as positions: commits that are the same program share one."""

    place: tuple[int, ...]
    """Position of each commit."""
    first: tuple[int, ...]
    """The commit with which each position begins: a step between positions is its work."""
    prior: tuple[float, ...]
    """Probability that the step is at a position; 0 at the first."""
    end: int
    """Index of the bad end."""

    @property
    def last(self) -> int:
        """The position of the bad end."""
        return len(self.first) - 1

    def shown(self, position: int) -> int:
        """The commit to build for a position: an end is itself, others are the first of their kind."""
        return self.end if position == self.last else self.first[position]


def line(commits: Sequence[Commit], same: Iterable[tuple[int, int]] = ()) -> Line:
    """Positions of the commits; `same` are pairs found to be alike. Nothing can have changed between two alike."""
    opened = [0] * (len(commits) + 1)
    for one, other in [*_alike(commits), *same]:
        opened[min(one, other)] += 1
        opened[max(one, other)] -= 1
    inside = [0, *accumulate(opened[:-1])][: len(commits)]
    first = [index for index in range(len(commits)) if index == 0 or inside[index] == 0]
    place = list(accumulate(int(index > 0 and inside[index] == 0) for index in range(len(commits))))
    weights = [0.0, *(max(commits[index].weight, 0.0) for index in first[1:])]
    weights = weights if any(weights) else [0.0] + [1.0] * (len(first) - 1)
    total = math.fsum(weights) or 1.0
    return Line(tuple(place), tuple(first), tuple(weight / total for weight in weights), len(commits) - 1)


def _alike(commits: Sequence[Commit]) -> list[tuple[int, int]]:
    """The first and the last commit of each group."""
    spans: dict[str, tuple[int, int]] = {}
    for index, commit in enumerate(commits):
        if commit.group:
            spans[commit.group] = spans.get(commit.group, (index, index))[0], index
    return list(spans.values())


@dataclass
class Trial:
    """The observations of one confirmation."""

    claim: Claim
    values: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    """By the position that was observed, then by relink; runs count 1 where they passed."""
    later: dict[int, int] = field(default_factory=dict)
    """Observations of the search since, by position."""

    @property
    def count(self) -> int:
        """All observations."""
        return sum(len(values) for links in self.values.values() for values in links.values())


@dataclass
class Seen:
    """What the journal says, by position."""

    line: Line
    values: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    """Observations of the search, by position and relink; runs count 1 where they passed."""
    trials: dict[Key, Trial] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    """Positions that cannot be tested, and why."""
    built: set[tuple[int, int]] = field(default_factory=set)
    """Positions and relinks whose build is there."""
    unlinked: bool = False
    """A relinked build failed: no more of them."""
    lost: int = 0
    """Tries in a row that were lost, the last one included."""
    reason: str = ""
    """Why the last one was."""
    observations: int = 0

    def count(self, position: int) -> int:
        """Observations of the search at a position."""
        return sum(map(len, self.values.get(position, {}).values()))


def read(problem: Problem, journal: Sequence[Asked]) -> Seen:
    """The state of a search that has asked and been told this."""
    same = [(one.asked.commit, one.outcome.commit) for one in journal if isinstance(one.outcome, Same)]
    seen = Seen(line(problem.commits, same) if same else problem.line)
    seen.built = {(position, 0) for position in _cached(problem, seen.line)}
    paired = problem.metric == "latency" and problem.noise.paired
    for one in journal:
        _note(seen, one.asked, one.outcome, paired=paired)
    return seen


def _cached(problem: Problem, at: Line) -> Iterable[int]:
    """Positions whose build lies in the cache."""
    return problem.cached if at is problem.line else {at.place[problem.line.first[one]] for one in problem.cached}


def _note(seen: Seen, asked: Try, outcome: Outcome, *, paired: bool) -> None:
    """Add one line of the journal. Where no value came the try counts as lost.

    Ratios to another commit than the good end come from a search with other ends: they say nothing here.
    """
    outcome = _plain(outcome)
    seen.lost, seen.reason = (seen.lost + 1, outcome.reason) if isinstance(outcome, Lost) else (0, "")
    if isinstance(outcome, Broken):
        _note_broken(seen, asked, outcome)
    elif not isinstance(outcome, Lost):
        place = seen.line.place
        reference = (place[asked.against], asked.relink if asked.claim else 0)
        seen.built |= {(place[asked.commit], asked.relink), reference}
        elsewhere = paired and asked.claim is None and place[asked.against] != 0
        if not isinstance(outcome, Same) and not elsewhere:
            _note_values(seen, asked, outcome)


def _plain(outcome: Outcome) -> Outcome:
    """Values as numbers, those that are none left out."""
    if isinstance(outcome, Broken | Lost | Same):
        return outcome
    values = [float(value) for value in outcome if math.isfinite(value)]
    return values or Lost("no value came")


def _note_broken(seen: Seen, asked: Try, outcome: Broken) -> None:
    if asked.relink:
        seen.unlinked = True
    else:
        index = asked.commit if outcome.commit is None else outcome.commit
        seen.broken[seen.line.place[index]] = outcome.reason


def _note_values(seen: Seen, asked: Try, values: Values) -> None:
    position = seen.line.place[asked.commit]
    seen.observations += len(values)
    if asked.claim is None:
        seen.values.setdefault(position, {}).setdefault(asked.relink, []).extend(values)
        for trial in seen.trials.values():
            trial.later[position] = trial.later.get(position, 0) + len(values)
    else:
        trial = seen.trials.setdefault(_key(seen, asked), Trial(asked.claim))
        trial.values.setdefault(position, {}).setdefault(asked.relink, []).extend(values)


def _key(seen: Seen, asked: Try) -> Key:
    """The two positions of a confirmation in order, and its number; both sides of it may be the one observed."""
    assert asked.claim is not None
    one, other = seen.line.place[asked.commit], seen.line.place[asked.against]
    return max(one, other), min(one, other), asked.claim.number


def builds(problem: Problem, journal: Sequence[Asked]) -> Mapping[str, int]:
    """How many builds a journal took: `good` and `broken` ones that were not in the cache, and `relinked` ones."""
    seen = read(problem, journal)
    made = seen.built - {(position, 0) for position in _cached(problem, seen.line)}
    relinked = sum(relink > 0 for _, relink in made)
    return {"good": len(made) - relinked, "broken": len(seen.broken), "relinked": relinked}
