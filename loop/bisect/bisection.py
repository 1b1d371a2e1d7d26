"""Which commit brought the regression: what to observe next, until it can be said. Pure: others build and measure.

What is done next follows from the journal alone, so a search that is given the journal of an interrupted one goes
on where that ended.

The ends are verified first. Then the commit is looked at that tells most about the step for its cost, until one
position has 0.95 of the posterior. A fresh paired test of it against its parent confirms it; where that fails
the search goes on to 0.99, then to 0.999, then gives up. A culprit that explains too little of the whole step
is not alone: both halves are searched. Commits that cannot be built leave their share to the next one that can.
"""

import math
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from loop.bisect.flaky_search import Correctness
from loop.bisect.journal import Observations, read
from loop.bisect.latency_search import Latency
from loop.bisect.model import Asked, Conclusion, Culprit, Key, Problem, Try
from loop.bisect.probes import Metric, choose

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
OBSERVED_MOST = 3000
"""Observations after which the search gives up."""


@dataclass(frozen=True)
class _Part:
    """What is known of a stretch of history."""

    mass: Sequence[float]
    found: tuple[Culprit, ...] = ()
    stop: Conclusion | None = None


def next_move(problem: Problem, journal: Sequence[Asked]) -> Try | Conclusion:
    """The next try, or the answer, after what the journal says."""
    seen = read(problem, journal)
    metric = metric_of(problem, seen)
    stop = _nothing(seen)
    step = _Part(seen.positions.prior, stop=stop) if stop else _solve(metric, 0, seen.positions.last)
    if isinstance(step, Try) and (stop := _enough(seen)):
        step = _Part(seen.positions.prior, stop=stop)
    return step if isinstance(step, Try) else _concluded(metric, step)


def metric_of(problem: Problem, seen: Observations) -> Metric:
    """What is known of what is observed."""
    return Latency(problem, seen) if problem.metric == "latency" else Correctness(problem, seen)


def _nothing(seen: Observations) -> Conclusion | None:
    """Why there is nothing to search, if so."""
    if seen.positions.last == 0:
        return Conclusion("no_regression", "not in the code: both ends are the same")
    for end, name in ((0, "good"), (seen.positions.last, "bad")):
        if end in seen.broken:
            return Conclusion("inconclusive", f"the {name} end cannot be tested: {seen.broken[end]}")
    return None


def _enough(seen: Observations) -> Conclusion | None:
    """Why nothing more is tried, if so."""
    if seen.lost >= LOST_MOST:
        return Conclusion("inconclusive", f"{seen.lost} tries in a row were lost: {seen.reason}")
    if seen.observations >= OBSERVED_MOST:
        return Conclusion("inconclusive", f"no answer after {seen.observations} observations")
    return None


def _solve(metric: Metric, low: int, high: int) -> Try | _Part:
    """The next try in a stretch of history, or what is known of it."""
    nowhere = (0.0,) * len(metric.seen.positions.prior)
    ends = metric.ends(low, high)
    if ends is not None:
        return ends if isinstance(ends, Try) else _Part(nowhere, stop=ends)
    inside = [key for key in metric.seen.confirmations if low <= key[1] and key[0] <= high and key[2]]
    words = {key: metric.word(key) for key in inside}
    for key, (word, evidence) in words.items():
        if word == "confirmed":
            return _blame(metric, low, high, key, evidence)
    if (middle := metric.apart(low, high)) is not None:
        return _all(metric, [(low, middle), (middle, high)], _Part(nowhere))
    return _narrow(metric, low, high, {key: word for key, (word, _) in words.items()})


def _blame(metric: Metric, low: int, high: int, key: Key, evidence: float) -> Try | _Part:
    """A confirmed culprit, and what there is on both sides of it if it does not explain the whole."""
    blamed = metric.blamed(low, high, key)
    if blamed.more:
        return blamed.more
    culprit, parent, _ = key
    mass = _confirmed(metric.mass(low, high), parent, culprit, evidence)
    part = _Part(mass, (_culprit(metric.seen, key, evidence, blamed.step),))
    return _all(metric, [(low, parent), (culprit, high)], part) if blamed.remains else part


def _confirmed(mass: Sequence[float], parent: int, culprit: int, evidence: float) -> tuple[float, ...]:
    """The posterior after a confirmation: the odds of the culprit times its evidence."""
    held = math.fsum(mass[parent + 1 : culprit + 1])
    after = held * evidence / (1 - held + held * evidence) if held else 1.0
    inside = after / held if held else after / (culprit - parent)
    outside = (1 - after) / (1 - held) if held < 1 else 0.0
    return tuple(
        min((value if held else 1.0) * inside, 1.0) if parent < position <= culprit else value * outside
        for position, value in enumerate(mass)
    )


def _all(metric: Metric, stretches: Sequence[tuple[int, int]], part: _Part) -> Try | _Part:
    """Search one stretch after the other, and add what is found to a part."""
    for low, high in stretches:
        if low < high:
            step = _solve(metric, low, high)
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


def _narrow(metric: Metric, low: int, high: int, words: Mapping[Key, str]) -> Try | _Part:
    """Search between two ends that differ, until the step lies between two neighbours."""
    seen = metric.seen
    for key, word in words.items():
        if word == "open" and seen.broken.keys().isdisjoint(key[:2]):
            return metric.ask(key, seen.confirmations[key].claim)
    failed = [key for key, word in words.items() if word == "failed"]
    if len(failed) >= len(LEVELS):
        why = f"{len(failed)} suspects were not confirmed, the last one {metric.name(failed[-1][0])}"
        return _Part(_denied(metric.mass(low, high), failed), stop=Conclusion("inconclusive", why))
    if (again := _rechecked(metric, failed)) is not None:
        return again
    first = _denied(metric.first(low, high), failed)
    parent, suspect = _likeliest(seen, low, high, first)
    if math.fsum(first[parent + 1 : suspect + 1]) < LEVELS[len(failed)]:
        wanted = choose(metric, low, high, _denied(metric.guesses(low, high), failed))
        if wanted:
            return wanted
    return _accuse(metric, low, high, (parent, suspect), failed)


def _accuse(metric: Metric, low: int, high: int, likeliest: tuple[int, int], failed: Sequence[Key]) -> Try | _Part:
    """Confirm a suspect, or a range of them, that stands out whatever builds differ by; or try what shows more."""
    mass, doubt = _denied(metric.mass(low, high), failed), metric.doubt(low, high)
    parent, suspect = likeliest
    probability = math.fsum(mass[parent + 1 : suspect + 1])
    if probability * (1 - doubt) < max(LEVELS[len(failed)], metric.named):
        if wanted := _weigh(metric.careful(), low, high, parent, suspect, mass):
            return wanted
        parent, suspect = run_of(low, high, mass, metric.seen.broken, metric.named)
        doubtful = DOUBT_MOST if suspect - parent > 1 else DOUBT_ALONE
        if doubt > doubtful or suspect - parent > widest(low, high):
            return _Part(mass, stop=metric.unsure(low, high, doubt))
    certain = metric.certain(low, high, parent, suspect, probability)
    if isinstance(certain, Try):
        return certain
    if certain:
        odds = min(probability / max(1 - probability, 1e-9), 1e6)
        return _Part(mass, (_culprit(metric.seen, (suspect, parent, 0), odds, 1.0),))
    number = 1 + max((key[2] for key in failed), default=0)
    return metric.ask((suspect, parent, number), metric.claim(low, high, suspect, number))


def _weigh(careful: Metric, low: int, high: int, parent: int, suspect: int, mass: Sequence[float]) -> Try | None:
    """What shows how sure a suspect is, where builds differ on their own: its neighbours, then what tells most."""
    first, last = run_of(low, high, mass, careful.seen.broken, careful.named)
    return (
        careful.beside(low, high, parent, suspect, NEAR)
        or choose(careful, low, high, mass, WORTH)
        or careful.beside(low, high, parent, suspect, FAR if last - first <= WIDE else MOST)
    )


def _rechecked(metric: Metric, failed: Sequence[Key]) -> Try | None:
    """Suspect and parent once more, after a confirmation that failed."""
    for key in failed:
        for position in key[:2]:
            missing = RECHECK - metric.seen.confirmations[key].later.get(position, 0)
            if missing > 0 and position not in metric.seen.broken:
                return metric.again(position, missing, "it was not confirmed: look again")
    return None


def _denied(mass: Sequence[float], failed: Sequence[Key]) -> tuple[float, ...]:
    """The posterior, less what failed confirmations deny."""
    left = list(mass)
    for culprit, parent, _ in failed:
        left[parent + 1 : culprit + 1] = [DENIED * value for value in left[parent + 1 : culprit + 1]]
    total = math.fsum(left)
    return tuple(value / total for value in left)


def _likeliest(seen: Observations, low: int, high: int, mass: Sequence[float]) -> tuple[int, int]:
    """The two neighbouring testable positions between which the step most likely is."""
    upper = list(accumulate(mass))
    testable = [position for position in range(low, high + 1) if position not in seen.broken]
    return max(pairwise(testable), key=lambda pair: upper[pair[1]] - upper[pair[0]])


def _culprit(seen: Observations, key: Key, evidence: float, step: float) -> Culprit:
    """The commits of which one made the step; those that cannot have are left out."""
    culprit, parent, _ = key
    at = seen.positions
    possible = [position for position in range(parent + 1, culprit + 1) if at.prior[position] > 0] or [culprit]
    return Culprit(at.first[possible[0]], at.first[possible[-1]], evidence, step)


def _concluded(metric: Metric, part: _Part) -> Conclusion:
    """What is said in the end."""
    posterior = [0.0] * len(metric.seen.positions.place)
    for position, first in enumerate(metric.seen.positions.first):
        posterior[first] = part.mass[position]
    if not part.found:
        return replace(part.stop or Conclusion("inconclusive", "nothing was found"), posterior=tuple(posterior))
    one = part.found[0]
    outcome: Literal["several", "range", "culprit"]
    outcome = "several" if len(part.found) > 1 else "culprit" if one.first == one.last else "range"
    why = "; ".join(_words(metric, part, found) for found in part.found)
    return Conclusion(outcome, why, tuple(posterior), part.found)


def _words(metric: Metric, part: _Part, found: Culprit) -> str:
    """A culprit, and what is known of it."""
    step = f"{metric.said(found.step)}, evidence {found.evidence:,.0f} to 1"
    begin, end = (metric.problem.commits[index].name for index in (found.first, found.last))
    if found.first == found.last:
        return f"commit {begin}: {step}"
    which = f"one of commits {begin} to {end}"
    first, last = (metric.seen.positions.place[index] for index in (found.first, found.last))
    if metric.seen.broken.keys() & range(first, last):
        return f"{which}: {step}"
    share = math.fsum(part.mass[first : last + 1])
    return f"{which} ({share:.0%}): {step}; builds differ on their own, so that no single one stands out"


HELD = (0.94, 0.88, 0.8)
"""Posterior of a range; of one that would have many commits; of one that would have too many.

A run of whole commits exceeds what is asked for: in simulated histories 98 % of them hold the culprit.
"""
WIDE, WIDEST = 5, 16
"""Commits that are many; those beyond which, or beyond a quarter of all, a range is no answer."""


def run_of(low: int, high: int, mass: Sequence[float], broken: Container[int], alone: float) -> tuple[int, int]:
    """A run of positions after `low` up to `high`: the testable one before its first, and the one at its last.

    `mass`: probability of a step at each position. `alone`: what a single one has to reach. As sure as is needed;
    where that makes the run wide, a little less.
    """
    found = _shortest(low, high, mass, HELD[0])
    if found[1] - found[0] == 1:
        found = _shortest(low, high, mass, alone)
    for held, width in zip(HELD[1:], (WIDE, widest(low, high)), strict=True):
        if found[1] - found[0] > width:
            found = _shortest(low, high, mass, held)
    testable = [position for position in range(low, high + 1) if position not in broken]
    return max(one for one in testable if one <= found[0]), min(one for one in testable if one >= found[1])


def widest(low: int, high: int) -> int:
    """Commits beyond which a range is no answer."""
    return min(max((high - low) // 4, WIDE), WIDEST)


def _shortest(low: int, high: int, mass: Sequence[float], held: float) -> tuple[int, int]:
    """The shortest run that has so much of the posterior, of those as short the likeliest; from its parent on."""
    upper = [0.0, *accumulate(mass)]
    runs = []
    for last in range(low + 1, high + 1):
        parent = bisect_right(upper, upper[last + 1] - held, low + 1, last + 1) - 2
        if parent >= low:
            runs.append((last - parent, upper[parent + 1] - upper[last + 1], parent, last))
    return min(runs)[2:] if runs else (low, high)
