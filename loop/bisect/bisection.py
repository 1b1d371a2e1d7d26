"""Which commit brought the regression: what to observe next, until it can be said. Pure: others build and measure.

`search` yields a `Try` and is sent what came of it. What it does next follows from the journal alone, so a
search that is given the journal of an interrupted one goes on where that ended.

The ends are verified first. Then the commit is looked at that tells most about the step for its cost, until one
position has 0.95 of the posterior. A fresh paired test of it against its parent confirms it; where that fails
the search goes on to 0.99, then to 0.999, then gives up. A culprit that explains too little of the whole step
is not alone: both halves are searched. Commits that cannot be built leave their share to the next one that can.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Literal

from loop.bisect.flaky_search import Correctness
from loop.bisect.latency_search import Latency
from loop.bisect.probes import Metric, Refuted, Wish, choose
from loop.bisect.ranges import WIDE, run_of, widest
from loop.bisect.suspects import Answer, Asked, Broken, Found, Key, Line, Lost, Outcome, Problem, Seen, Try, read

LEVELS = (0.95, 0.99, 0.999)
"""Posterior at which a suspect is confirmed: the first, and after each confirmation that failed."""
DOUBT_ALONE, DOUBT_MOST = 0.1, 0.4
"""A single commit, or a range, is named only where it is less probable that there is no step but scatter."""
WORTH = 0.01
"""Bits that a look has to tell, once it is weighed what builds differ by."""
NEAR, FAR, MOST = 6, 12, 32
"""Builds on either side of a suspect that show how far builds differ; where a range is left; where it is wide."""
DENIED = 0.01
"""What a failed confirmation leaves of the suspect's odds."""
RECHECK = 4
"""Fresh observations of suspect and parent after a failed confirmation: an outlier may have misled the search."""
LOST_MOST = 3
"""Tries lost in a row, after which the search gives up."""

Search = Generator[Try, Outcome, Answer]
Outcomes = Literal["culprit", "several", "range", "no_regression", "inconclusive"]


@dataclass(frozen=True)
class _Part:
    """What is known of a stretch of history."""

    mass: tuple[float, ...]
    found: tuple[Found, ...] = ()
    stop: Refuted | None = None


@dataclass(frozen=True)
class _Suspect:
    """A position, or a run of them, that may be confirmed."""

    parent: int
    position: int
    mass: tuple[float, ...]
    probability: float


@dataclass(frozen=True)
class _Scene:
    """A search at one moment."""

    problem: Problem
    seen: Seen
    metric: Metric


def search(problem: Problem, journal: Sequence[Asked] = ()) -> Search:
    """Ask until there is an answer.

    `journal` is what was asked and told before; what was lost at its end is asked again.
    """
    told = list(journal)
    while told and isinstance(told[-1].outcome, Lost):
        told.pop()
    step = decide(problem, told)
    while isinstance(step, Try):
        told.append(Asked(step, (yield step)))
        step = decide(problem, told)
    return step


def decide(problem: Problem, journal: Sequence[Asked]) -> Try | Answer:
    """The next try, or the answer, after what the journal says."""
    seen = read(problem, journal)
    if stop := _nothing(seen):
        return _answer(seen, _Part(seen.line.prior, stop=stop))
    metric: Metric = Latency(problem, seen) if problem.metric == "latency" else Correctness(problem, seen)
    step = _solve(_Scene(problem, seen, metric), 0, seen.line.last)
    if isinstance(step, _Part):
        return _answer(seen, step)
    stop = _enough(problem, seen)
    return _answer(seen, _Part(seen.line.prior, stop=stop)) if stop else step


def ahead(problem: Problem, journal: Sequence[Asked], wanted: Try) -> list[Try]:
    """What will be asked after a try: if its commit is like the good end, or the bad one, or cannot be tested."""
    steps = (decide(problem, [*journal, Asked(wanted, outcome)]) for outcome in _guesses(problem, journal, wanted))
    return [step for step in steps if isinstance(step, Try)]


def _guesses(problem: Problem, journal: Sequence[Asked], wanted: Try) -> tuple[Outcome, ...]:
    """What may come of a try; of a confirmation, that it is one."""
    if problem.metric == "correctness":
        return [True] * wanted.batch, [False] * wanted.batch, Broken("a guess")
    bad = [
        value for one in journal if one.asked.commit == len(problem.commits) - 1 for value in _numbers(one.outcome)
    ]
    slow = [fmean(bad) if bad else 0.0] * wanted.batch
    return (slow,) if wanted.claim else ([0.0] * wanted.batch, slow, Broken("a guess"))


def _numbers(outcome: Outcome) -> Sequence[float]:
    return outcome if isinstance(outcome, Sequence) else ()


def _nothing(seen: Seen) -> Refuted | None:
    """Why there is nothing to search, if so."""
    if seen.line.last == 0:
        return Refuted("no_regression", "not in the code: both ends are the same")
    for end, name in ((0, "good"), (seen.line.last, "bad")):
        if end in seen.broken:
            return Refuted("inconclusive", f"the {name} end cannot be tested: {seen.broken[end]}")
    return None


def _enough(problem: Problem, seen: Seen) -> Refuted | None:
    """Why nothing more is tried, if so."""
    if seen.lost >= LOST_MOST:
        return Refuted("inconclusive", f"{seen.lost} tries in a row were lost: {seen.reason}")
    if seen.observations >= problem.limit:
        return Refuted("inconclusive", f"no answer after {seen.observations} observations")
    return None


def _solve(scene: _Scene, low: int, high: int) -> Try | _Part:
    """The next try in a stretch of history, or what is known of it."""
    ends = scene.metric.ends(low, high)
    if isinstance(ends, Wish):
        return _ask(scene.seen, ends)
    if ends:
        return _Part(_nowhere(scene.seen), stop=ends)
    inside = [key for key in scene.seen.trials if low <= key[1] and key[0] <= high and key[2]]
    words = {key: scene.metric.word(key) for key in inside}
    for key, (word, evidence) in words.items():
        if word == "confirmed":
            return _blame(scene, low, high, key, evidence)
    if (middle := scene.metric.apart(low, high)) is not None:
        return _all(scene, [(low, middle), (middle, high)], _Part(_nowhere(scene.seen)))
    return _narrow(scene, low, high, {key: word for key, (word, _) in words.items()})


def _blame(scene: _Scene, low: int, high: int, key: Key, evidence: float) -> Try | _Part:
    """A confirmed culprit, and what there is on both sides of it if it does not explain the whole."""
    blamed = scene.metric.blamed(low, high, key)
    if blamed.more:
        return _ask(scene.seen, blamed.more) if isinstance(blamed.more, Wish) else blamed.more
    part = _Part(_mass(scene, low, high, ()), (_found(scene.seen.line, key, evidence, blamed.step),))
    culprit, parent, _ = key
    return _all(scene, [(low, parent), (culprit, high)], part) if blamed.remains else part


def _all(scene: _Scene, stretches: Sequence[tuple[int, int]], part: _Part) -> Try | _Part:
    """Search one stretch after the other, and add what is found to a part."""
    for low, high in stretches:
        if low < high:
            step = _solve(scene, low, high)
            if isinstance(step, Try):
                return step
            part = _joined(part, step)
    return part


def _joined(one: _Part, other: _Part) -> _Part:
    """Two parts together; the first reason why nothing was found stands."""
    if not other.found:
        return _Part(one.mass, one.found, one.stop or other.stop)
    mass = other.mass if not one.found else tuple(map(max, one.mass, other.mass))
    return _Part(mass, tuple(sorted(one.found + other.found, key=lambda found: found.first)), one.stop)


def _narrow(scene: _Scene, low: int, high: int, words: Mapping[Key, str]) -> Try | _Part:
    """Search between two ends that differ."""
    seen, metric = scene.seen, scene.metric
    for key in [key for key, word in words.items() if word == "open" and seen.broken.keys().isdisjoint(key[:2])]:
        return metric.ask(key, seen.trials[key].claim)
    failed = [key for key, word in words.items() if word == "failed"]
    if len(failed) >= len(LEVELS):
        why = f"{len(failed)} suspects were not confirmed, the last one {seen.line.shown(failed[-1][0])}"
        return _Part(_mass(scene, low, high, failed), stop=Refuted("inconclusive", why))
    if (again := _rechecked(scene, failed)) is not None:
        return _ask(seen, again)
    first, level = _denied(metric.first(low, high), failed), LEVELS[len(failed)]
    parent, suspect = _likeliest(seen, low, high, first)
    if math.fsum(first[parent + 1 : suspect + 1]) < level:
        wish = choose(seen, metric, low, high, _denied(metric.guesses(low, high), failed))
        if wish:
            return _ask(seen, wish)
    step = _named(scene, low, high, (parent, suspect), failed)
    if not isinstance(step, _Suspect):
        return step
    parent, suspect, mass, probability = step.parent, step.position, step.mass, step.probability
    certain = metric.certain(low, high, parent, suspect, probability)
    if isinstance(certain, Wish):
        return _ask(seen, certain)
    if certain:
        odds = min(probability / max(1 - probability, 1e-9), 1e6)
        return _Part(mass, (_found(seen.line, (suspect, parent, 0), odds, 1.0),))
    number = 1 + max((key[2] for key in failed), default=0)
    return metric.ask((suspect, parent, number), metric.claim(low, high, suspect, number))


def _named(
    scene: _Scene, low: int, high: int, likeliest: tuple[int, int], failed: Sequence[Key]
) -> Try | _Part | _Suspect:
    """A suspect, or a range of them, that stands out whatever builds differ by; or a try that shows more."""
    seen, metric = scene.seen, scene.metric
    mass, doubt = _mass(scene, low, high, failed), metric.doubt(low, high)
    parent, suspect = likeliest
    probability = math.fsum(mass[parent + 1 : suspect + 1])
    if probability * (1 - doubt) < max(LEVELS[len(failed)], metric.named):
        if wish := _weigh(scene, low, high, parent, suspect, mass):
            return _ask(seen, wish)
        parent, suspect = run_of(low, high, mass, seen.broken, metric.named)
        doubtful = DOUBT_MOST if suspect - parent > 1 else DOUBT_ALONE
        if doubt > doubtful or suspect - parent > widest(low, high):
            return _Part(mass, stop=metric.unsure(low, high, doubt))
    return _Suspect(parent, suspect, mass, probability)


def _weigh(scene: _Scene, low: int, high: int, parent: int, suspect: int, mass: Sequence[float]) -> Wish | None:
    """What shows how sure a suspect is, where builds differ on their own: its neighbours, then what tells most."""
    seen, metric = scene.seen, scene.metric.careful()
    first, last = run_of(low, high, mass, seen.broken, metric.named)
    return (
        metric.beside(low, high, parent, suspect, NEAR)
        or choose(seen, metric, low, high, mass, WORTH)
        or metric.beside(low, high, parent, suspect, FAR if last - first <= WIDE else MOST)
    )


def _rechecked(scene: _Scene, failed: Sequence[Key]) -> Wish | None:
    """Suspect and parent once more, after a confirmation that failed."""
    for key in failed:
        for position in key[:2]:
            missing = RECHECK - scene.seen.trials[key].later.get(position, 0)
            if missing > 0 and position not in scene.seen.broken:
                return scene.metric.again(position, missing, "it was not confirmed: look again")
    return None


def _mass(scene: _Scene, low: int, high: int, failed: Sequence[Key]) -> tuple[float, ...]:
    """Posterior of a step at each position between two ends."""
    return _denied(scene.metric.mass(low, high), failed)


def _denied(mass: Sequence[float], failed: Sequence[Key]) -> tuple[float, ...]:
    """The posterior, less what failed confirmations deny."""
    left = list(mass)
    for culprit, parent, _ in failed:
        left[parent + 1 : culprit + 1] = [DENIED * value for value in left[parent + 1 : culprit + 1]]
    total = math.fsum(left)
    return tuple(value / total for value in left)


def _nowhere(seen: Seen) -> tuple[float, ...]:
    return (0.0,) * len(seen.line.prior)


def _likeliest(seen: Seen, low: int, high: int, mass: Sequence[float]) -> tuple[int, int]:
    """The two neighbouring testable positions between which the step most likely is."""
    upper = list(accumulate(mass))
    testable = [position for position in range(low, high + 1) if position not in seen.broken]
    return max(pairwise(testable), key=lambda pair: upper[pair[1]] - upper[pair[0]])


def _found(line: Line, key: Key, evidence: float, step: float) -> Found:
    """The commits of which one made the step; those that cannot have are left out."""
    culprit, parent, _ = key
    possible = [position for position in range(parent + 1, culprit + 1) if line.prior[position] > 0] or [culprit]
    return Found(line.first[possible[0]], line.first[possible[-1]], evidence, step)


def _ask(seen: Seen, wish: Wish) -> Try:
    return Try(seen.line.shown(wish.position), wish.batch, wish.why, 0, wish.relink)


def _answer(seen: Seen, part: _Part) -> Answer:
    """What is said in the end."""
    posterior = [0.0] * len(seen.line.place)
    for position, first in enumerate(seen.line.first):
        posterior[first] = part.mass[position]
    exact = tuple(found.first for found in part.found if found.first == found.last)
    runs = [(found.first, found.last) for found in part.found if found.first != found.last]
    if not part.found:
        stop = part.stop or Refuted("inconclusive", "nothing was found")
        return Answer(stop.outcome, (), None, tuple(posterior), stop.why, (), stop.swapped)
    outcome: Outcomes = "several" if len(part.found) > 1 else "range" if runs else "culprit"
    why = "; ".join(_words(seen, part, found) for found in part.found)
    return Answer(outcome, exact, runs[0] if runs else None, tuple(posterior), why, part.found)


def _words(seen: Seen, part: _Part, found: Found) -> str:
    """A culprit, and what is known of it."""
    step = f"{found.step:+.1%} against its parent, evidence {found.evidence:,.0f} to 1"
    if found.first == found.last:
        return f"commit {found.first}: {step}"
    which = f"one of commits {found.first} to {found.last}"
    first, last = seen.line.place[found.first], seen.line.place[found.last]
    if seen.broken.keys() & range(first, last):
        return f"{which}: {step}"
    share = math.fsum(part.mass[first : last + 1])
    return f"{which} ({share:.0%}): {step}; builds differ on their own, so that no single one stands out"
