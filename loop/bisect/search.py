"""Which commit brought the regression: what to observe next, until it can be said. Pure: others build and measure.

The next try follows from the journal alone, so an interrupted search goes on from what it kept.

1. Both ends are observed until they differ.
2. The commit in the middle of those in question is observed until its side is decided at 99 to 1. A commit whose
   side stays open, because builds differ on their own, is stepped over: its neighbours are observed.
3. Fresh observations of the culprit and its parent confirm the culprit. If they do not, the search goes on without
   it, and gives up after the third.
4. A culprit that explains too little of the whole step is not alone: both sides of it are searched.

Each gap between two commits that were observed has a score, the log likelihood that the step lies in it
(`latency.Latencies`, `runs.Runs`). The confidence in a commit is its share of exp(score), weighted by how many
commits are in a gap. Commits that cannot be built leave their share to the next one that can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from loop.bisect.latency import Latencies
from loop.bisect.model import Culprit, Key, Observations, Problem, SearchEnd, SearchTry, Try, read
from loop.bisect.runs import Runs

LEANING, DECIDED = 0.05, 0.01
"""Share of the other side below which the search goes on past a commit; below which its side is decided."""
NAMED = 0.99
"""Confidence at which a single commit is confirmed, and then named."""
HELD = 0.97
"""Confidence of a range."""
DOUBT = 0.1
"""Share of "there is no step, builds just differ" above which nobody is named."""
DENIED = 0.01
"""What a failed confirmation leaves of a suspect's odds."""
SUSPECTS = 3
"""Suspects that are tried before the search gives up."""
WIDEST = 16
"""Commits beyond which, or beyond a quarter of all, a range is no answer; up to five are always one."""
LOST_MOST = 3
"""Tries lost in a row, after which the search gives up."""
OBSERVED_MOST = 3000
"""Observations after which the search gives up."""


Evidence = Latencies | Runs


@dataclass(frozen=True)
class _Answer:
    """What is known of a stretch of history."""

    shares: Sequence[float]
    """Confidence, by position."""
    found: tuple[Culprit, ...] = ()
    stop: SearchEnd | None = None


def next_move(problem: Problem, journal: Sequence[SearchTry]) -> Try | SearchEnd:
    """The next try, or the answer, after what the journal says."""
    observations = read(problem, journal)
    evidence = Latencies(observations) if problem.metric == "latency" else Runs(observations)
    stop = _nothing(observations)
    move = (
        _Answer(observations.positions.prior, stop=stop)
        if stop
        else _solve(evidence, 0, observations.positions.last)
    )
    if isinstance(move, Try) and (stop := _enough(observations)):
        move = _Answer(observations.positions.prior, stop=stop)
    return move if isinstance(move, Try) else _concluded(evidence, move)


def next_tries(problem: Problem, journal: Sequence[SearchTry], width: int) -> tuple[Try, ...] | SearchEnd:
    """Up to `width` tries that do not wait for each other: the next one, then the middles on both of its sides."""
    first = next_move(problem, journal)
    if isinstance(first, SearchEnd):
        return first
    observations = read(problem, journal)
    last, position = observations.positions.last, observations.positions.place[first.commit]
    if first.claim is not None or (observations.count(position) and position != last):
        return (first,)
    known = {0, last, *observations.values}
    low = max((at for at in known if at < position), default=0)
    high = min((at for at in known if at > position), default=position)
    stretches, chosen = [(low, position), (position, high)], [position]
    for start, end in stretches:
        middle = (start + end) // 2
        if len(chosen) >= width or len(stretches) > 8 * width:
            break
        if start < middle < end:
            chosen += [middle] if middle not in observations.broken and middle not in chosen else []
            stretches += [(start, middle), (middle, end)]
    return (first, *(replace(first, commit=observations.positions.shown(at)) for at in chosen[1:]))


def _nothing(observations: Observations) -> SearchEnd | None:
    """Why there is nothing to search, if so."""
    if observations.positions.last == 0:
        return SearchEnd("no_regression", "not in the code: both ends are the same")
    for end, name in ((0, "good"), (observations.positions.last, "bad")):
        if end in observations.broken:
            return SearchEnd("inconclusive", f"the {name} end cannot be tested: {observations.broken[end]}")
    return None


def _enough(observations: Observations) -> SearchEnd | None:
    """Why nothing more is tried, if so."""
    if observations.lost >= LOST_MOST:
        return SearchEnd("inconclusive", f"{observations.lost} tries in a row were lost: {observations.reason}")
    if observations.observations >= OBSERVED_MOST:
        return SearchEnd("inconclusive", f"no answer after {observations.observations} observations")
    return None


def _solve(evidence: Evidence, low: int, high: int) -> Try | _Answer:
    """The next try in a stretch of history, or what is known of it."""
    nowhere = (0.0,) * len(evidence.seen.positions.prior)
    ends = evidence.ends(low, high)
    if ends is not None:
        return ends if isinstance(ends, Try) else _Answer(nowhere, stop=ends)
    failed = list[Key]()
    for key, confirmation in evidence.seen.confirmations.items():
        if low <= key[1] and key[0] <= high:
            word, strength = evidence.word(key)
            if word == "open" and evidence.seen.broken.keys().isdisjoint(key[:2]):
                return evidence.confirm(key, confirmation.claim)
            if word == "confirmed":
                return _blame(evidence, low, high, key, strength)
            failed.append(key)
    if (middle := evidence.apart(low, high)) is not None:
        return _both(evidence, [(low, middle), (middle, high)], _Answer(nowhere))
    if len(failed) >= SUSPECTS:
        why = f"{len(failed)} suspects were not confirmed, the last one {evidence.seen.name(failed[-1][0])}"
        return _Answer(nowhere, stop=SearchEnd("inconclusive", why))
    return _narrow(evidence, low, high, failed)


def _blame(evidence: Evidence, low: int, high: int, key: Key, strength: float) -> Try | _Answer:
    """A confirmed culprit, and what there is on both sides of it if it does not explain the whole."""
    culprit, parent, _ = key
    step, remains = evidence.step(low, high, key)
    shares = _shares(evidence, low, high, ())
    held = math.fsum(shares[parent + 1 : culprit + 1])
    after = held * strength / (1 - held + held * strength) if held else 1.0
    scaled = [
        value * (after / held if held else 1.0)
        if parent < at <= culprit
        else value * (1 - after) / max(1 - held, 1e-300)
        for at, value in enumerate(shares)
    ]
    if not held:
        scaled[culprit] = 1.0
    answer = _Answer([min(value, 1.0) for value in scaled], (_culprit(evidence.seen, key, strength, step),))
    return _both(evidence, [(low, parent), (culprit, high)], answer) if remains else answer


def _both(evidence: Evidence, stretches: Sequence[tuple[int, int]], answer: _Answer) -> Try | _Answer:
    """Search one stretch after the other, and add what is found to an answer."""
    for low, high in stretches:
        if low < high:
            more = _solve(evidence, low, high)
            if isinstance(more, Try):
                return more
            culprits = tuple(sorted(answer.found + more.found, key=lambda culprit: culprit.first))
            shares = tuple(map(max, answer.shares, more.shares)) if more.found else answer.shares
            answer = _Answer(shares, culprits, answer.stop or more.stop)
    return answer


def _narrow(evidence: Evidence, low: int, high: int, failed: Sequence[Key]) -> Try | _Answer:
    """Search between two ends that differ, until the step lies between two neighbours."""
    observations = evidence.seen
    shares = _shares(evidence, low, high, failed)
    below = list(accumulate(shares))
    """Share of a step at a position or before it, by position: how surely the position is slow."""
    observed = [
        at
        for at in range(low, high + 1)
        if (observations.count(at) or at in (low, high)) and at not in observations.broken
    ]
    for other in (LEANING, DECIDED):
        good = max(at for at in observed if below[at] <= other or at == low)
        bad = min((at for at in observed if at > good and below[at] >= 1 - other), default=high)
        inside = [at for at in observed if good < at < bad]
        for at in sorted(inside, key=lambda at: abs(below[at] - 0.5)):
            if batch := evidence.batch(low, high, at, sure=other == DECIDED):
                return evidence.seen.look(at, batch, f"again: {below[at]:.0%} that it regressed")
        fresh = [at for at in range(good + 1, bad) if at not in observations.broken and not observations.count(at)]
        if fresh and (other == LEANING or bad - good <= WIDEST):
            broken = [at for at in observations.broken if good < at < bad]
            away = {at: min((abs(at - other) for other in broken), default=1) for at in fresh}
            reach = min(3 ** max(len(broken) - 1, 0), max(away.values()))  # Broken commits lie together: jump.
            at = min((at for at in fresh if away[at] >= reach), key=lambda at: (abs(below[at] - 0.5), at))
            batch = max(evidence.batch(low, high, at, sure=False), 1)
            return evidence.seen.look(at, batch, f"probe: {below[at]:.0%} that it regressed")
    return _accuse(evidence, low, high, shares, failed)


def _accuse(
    evidence: Evidence, low: int, high: int, shares: Sequence[float], failed: Sequence[Key]
) -> Try | _Answer:
    """Confirm the suspect. Where no commit is clearly above the noise between builds: a range, or nobody."""
    observations = evidence.seen
    testable = [at for at in range(low, high + 1) if at not in observations.broken]
    upper = list(accumulate(shares))
    parent, suspect = max(pairwise(testable), key=lambda pair: upper[pair[1]] - upper[pair[0]])
    confidence, doubt = upper[suspect] - upper[parent], evidence.doubt(low, high)
    if confidence * (1 - doubt) < NAMED:
        if wanted := evidence.beside(low, high, (parent, suspect)):
            return wanted
        first, last = _shortest(testable, upper, HELD)
        if doubt > DOUBT or last - first > min(max((high - low) // 4, 5), WIDEST):
            why = (
                f"no step is clear of the noise between builds: {observations.name(suspect)} with {confidence:.0%}"
            )
            return _Answer(shares, stop=SearchEnd("no_regression" if doubt > 0.5 else "inconclusive", why))
        parent, suspect = first, last
    certain = evidence.certain(parent, suspect)
    if isinstance(certain, Try):
        return certain
    if certain:
        odds = min(confidence / max(1 - confidence, 1e-9), 1e6)
        return _Answer(shares, (_culprit(observations, (suspect, parent, 0), odds, 1.0),))
    number = 1 + len(failed)
    return evidence.confirm((suspect, parent, number), evidence.claim(low, high, number))


def _shares(evidence: Evidence, low: int, high: int, failed: Sequence[Key]) -> list[float]:
    """The confidence in each position of a stretch, less what failed confirmations deny."""
    prior = evidence.seen.positions.prior
    positions, scores = evidence.scores(low, high)
    best = max(scores)
    weights = [0.0] * len(prior)
    for (start, end), score in zip(pairwise(positions), scores, strict=True):
        share = math.exp(max(score - best, -700.0))
        weights[start + 1 : end + 1] = [share * max(weight, 1e-12) for weight in prior[start + 1 : end + 1]]
    for culprit, parent, _ in failed:
        weights[parent + 1 : culprit + 1] = [DENIED * value for value in weights[parent + 1 : culprit + 1]]
    total = math.fsum(weights)
    return [value / total for value in weights]


def _shortest(testable: Sequence[int], upper: Sequence[float], held: float) -> tuple[int, int]:
    """The shortest run of commits with so much confidence: the testable position before it, and its last one."""
    runs = [(b - a, upper[a] - upper[b], a, b) for a in testable for b in testable if a < b]
    return min(run for run in runs if -run[1] >= held - 1e-9)[2:]


def _culprit(observations: Observations, key: Key, evidence: float, step: float) -> Culprit:
    """The commits of which one made the step; those that cannot have are left out."""
    culprit, parent, _ = key
    at = observations.positions
    possible = [position for position in range(parent + 1, culprit + 1) if at.prior[position] > 0] or [culprit]
    return Culprit(at.first[possible[0]], at.first[possible[-1]], evidence, step)


def _concluded(evidence: Evidence, answer: _Answer) -> SearchEnd:
    """What is said in the end."""
    at = evidence.seen.positions
    shares = [0.0] * len(at.place)
    for position, first in enumerate(at.first):
        shares[first] = answer.shares[position]
    if not answer.found:
        return replace(answer.stop or SearchEnd("inconclusive", "nothing was found"), shares=tuple(shares))
    culprit = answer.found[0]
    outcome: Literal["several", "range", "culprit"]
    outcome = "several" if len(answer.found) > 1 else "culprit" if culprit.first == culprit.last else "range"
    why = "; ".join(_words(evidence, answer, blamed) for blamed in answer.found)
    return SearchEnd(outcome, why, tuple(shares), answer.found)


def _words(evidence: Evidence, answer: _Answer, culprit: Culprit) -> str:
    """A culprit, and what is known of it."""
    step = f"{evidence.said(culprit.step)}, evidence {culprit.evidence:,.0f} to 1"
    begin, end = (evidence.seen.problem.commits[index].name for index in (culprit.first, culprit.last))
    if culprit.first == culprit.last:
        return f"commit {begin}: {step}"
    first, last = (evidence.seen.positions.place[index] for index in (culprit.first, culprit.last))
    if evidence.seen.broken.keys() & range(first, last):
        return f"one of commits {begin} to {end}: {step}"
    share = math.fsum(answer.shares[first : last + 1])
    return (
        f"one of commits {begin} to {end} ({share:.0%}): {step}; builds differ on their own, so that no single one"
        " stands out"
    )
