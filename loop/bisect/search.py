"""Which commit brought the regression: what to observe next, until it can be said. Pure: others build and measure.

The next try follows from the probes so far alone, so an interrupted search goes on from what it kept.

1. Both ends are observed until they differ.
2. The commit in the middle of those in question is observed until its side is decided.
3. Beside the step further builds show how far builds differ on their own. Commits whose side that noise hides
   stay in question: the answer is a range, or nobody.
4. Fresh observations of the culprit and its parent confirm the culprit. If they do not, the search goes on without
   it, and gives up after the third.
5. A culprit that explains too little of the whole step is not alone: both sides of it are searched.

Between two commits that were observed lies a gap. Its score is the log likelihood that the step lies in it
(`pairs.Pairs`, `runs.Runs`); the share of a commit is its part of exp(score). Commits that cannot be built leave
their share to the next one that can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from loop.bisect.model import Culprit, Key, Problem, SearchEnd, Try, read
from loop.bisect.pairs import Pairs
from loop.bisect.runs import Runs
from loop.model.bisect import Probe

LEANING, DECIDED = 0.05, 0.004
"""Share of the other side below which the search goes on past a commit; below which its side is decided."""
DENIED = 0.01
"""What a failed confirmation leaves of a suspect's odds."""
SUSPECTS = 3
"""Suspects that are tried before the search gives up."""
FEW, MANY = 8, 14
"""Builds that show how far builds differ on their own; where that is likely to be little."""
WIDEST = 16
"""Commits beyond which, or beyond a quarter of all, a range is no answer; up to five are always one."""
LOST_MOST = 3
"""Tries lost in a row, after which the search gives up."""
OBSERVED_MOST = 3000
"""Observations after which the search gives up."""

Evidence = Pairs | Runs


@dataclass(frozen=True)
class _Answer:
    """What is known of a stretch of history."""

    shares: Sequence[float]
    """By position."""
    found: tuple[Culprit, ...] = ()
    stop: SearchEnd | None = None


def next_move(problem: Problem, probes: Sequence[Probe]) -> Try | SearchEnd:
    """The next try, or the answer, after these probes."""
    seen = read(problem, probes)
    evidence = Pairs(seen) if problem.metric == "latency" else Runs(seen)
    stop = None
    ends = [
        f"the {end} end cannot be tested: {seen.broken[at]}"
        for end, at in (("good", 0), ("bad", problem.last))
        if at in seen.broken
    ]
    if problem.last == 0:
        stop = SearchEnd("no_regression", "not in the code: both ends are the same")
    elif ends:
        stop = SearchEnd("inconclusive", ends[0])
    move = _Answer(problem.prior, stop=stop) if stop else _solve(evidence, 0, problem.last)
    if isinstance(move, Try):
        if len(seen.lost) >= LOST_MOST:
            stop = SearchEnd("inconclusive", f"{len(seen.lost)} tries in a row were lost: {seen.lost[-1]}")
        elif seen.observations >= OBSERVED_MOST:
            stop = SearchEnd("inconclusive", f"no answer after {seen.observations} observations")
        else:
            return move
        move = _Answer(problem.prior, stop=stop)
    return _concluded(evidence, move)


def _solve(evidence: Evidence, low: int, high: int) -> Try | _Answer:
    """The next try between two positions, or what is known of that stretch."""
    seen = evidence.seen
    nowhere = _Answer((0.0,) * len(seen.problem.prior))
    ends = evidence.ends(low, high)
    if ends is not None:
        return ends if isinstance(ends, Try) else replace(nowhere, stop=ends)
    if (middle := evidence.apart(low, high)) is not None:
        return _both(evidence, [(low, middle), (middle, high)], nowhere)
    failed = list[Key]()
    for key, claim in seen.claims.items():
        if low <= key[1] and key[0] <= high:
            word, strength = evidence.word(key)
            if word == "open" and seen.broken.keys().isdisjoint(key[:2]):
                return evidence.confirm(key, claim)
            if word == "confirmed":
                step, remains = evidence.step(low, high, key)
                culprit = _culprit(evidence, key, strength, step)
                answer = _Answer(_shares(evidence, low, high, (), strict=False), (culprit,))
                return _both(evidence, [(low, key[1]), (key[0], high)], answer) if remains else answer
            failed.append(key)
    if len(failed) >= SUSPECTS:
        why = f"{len(failed)} suspects were not confirmed, the last one {seen.problem.name(failed[-1][0])}"
        return replace(nowhere, stop=SearchEnd("inconclusive", why))
    return _narrow(evidence, low, high, failed)


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
    """Search between two ends that differ, until it is decided on which side of the step each commit is."""
    seen = evidence.seen
    testable = [at for at in range(low, high + 1) if at not in seen.broken]
    observed = [at for at in testable if seen.count(at) or at in (low, high)]
    good, bad, shares, hopeful = low, high, list[float](), False
    for doubt, strict in ((LEANING, False), (DECIDED, True)):
        hopeful = testable.index(bad) - testable.index(good) == 1  # Once builds differ by less than is feared.
        shares = _shares(evidence, low, high, failed, strict=strict)
        below = list(accumulate(shares))
        """How surely a position is bad: the share of steps at it or before it."""
        good = max(at for at in observed if below[at] <= doubt or at == low)
        bad = min((at for at in observed if at > good and below[at] >= 1 - doubt), default=high)
        inside = [at for at in observed if good < at < bad]
        for at in sorted(inside, key=lambda at: abs(below[at] - 0.5)):
            if batch := evidence.batch(low, high, at, strict=strict):
                return seen.look(at, batch, f"again: {below[at]:.0%} that it regressed")
        fresh = [at for at in testable if good < at < bad and not seen.count(at)]
        if fresh and doubt == LEANING:
            broken = [at for at in seen.broken if good < at < bad]
            away = {at: min((abs(at - other) for other in broken), default=1) for at in fresh}
            reach = min(3 ** max(len(broken) - 1, 0), max(away.values()))  # Broken commits lie together: jump.
            at = min((at for at in fresh if away[at] >= reach), key=lambda at: (abs(below[at] - 0.5), at))
            batch = max(evidence.batch(low, high, at, strict=strict), 1)
            return seen.look(at, batch, f"probe: {below[at]:.0%} that it regressed")
    single, clear = testable.index(bad) - testable.index(good) == 1, evidence.clear(low, high, good, bad)
    if not (single and clear):
        upper = list(accumulate(shares))
        parent, suspect = max(pairwise(testable), key=lambda pair: upper[pair[1]] - upper[pair[0]])
        if wanted := _neighbour(evidence, testable, parent, suspect, MANY if hopeful else FEW):
            return wanted
        if not clear or (not single and bad - good > min(max((high - low) // 4, 5), WIDEST)):
            name, share = seen.problem.name(suspect), upper[suspect] - upper[parent]
            why = f"no step is clear of the noise between builds: {name} with {share:.0%}"
            return _Answer(shares, stop=SearchEnd("inconclusive", why))
    certain = evidence.certain(good, bad)
    if isinstance(certain, Try):
        return certain
    if certain:
        return _Answer(shares, (_culprit(evidence, (bad, good, 0), 1 / DECIDED, 1.0),))
    number = 1 + len(failed)
    return evidence.confirm((bad, good, number), evidence.claim(low, high, number))


def _neighbour(evidence: Evidence, testable: Sequence[int], parent: int, suspect: int, most: int) -> Try | None:
    """Try the nearest build beside the step that was not tried, of the side with fewer known ones.

    None where `most` builds are known, or where neighbours tell nothing.
    """
    seen, at = evidence.seen, testable.index(parent)
    known = [place for place in testable if seen.count(place) or place == 0]
    sides = testable[at::-1], testable[testable.index(suspect) :]
    fresh = [[place for place in side if place not in known] for side in sides]
    batch, exact = evidence.enough(testable[0], testable[-1])
    why = "neighbour: what do builds differ by on their own?"
    if batch and len(known) < most and any(fresh):
        side = min((side for side in (0, 1) if fresh[side]), key=lambda side: len(sides[side]) - len(fresh[side]))
        return seen.look(fresh[side][0], batch, why)
    least = min(known[1:], key=seen.count)
    return seen.look(least, batch, why) if most == MANY and seen.count(least) < exact else None


def _shares(evidence: Evidence, low: int, high: int, failed: Sequence[Key], *, strict: bool) -> list[float]:
    """The share of each position of a stretch, less what failed confirmations deny."""
    prior = evidence.seen.problem.prior
    positions, scores = evidence.scores(low, high, strict=strict)
    best = max(scores)
    weights = [0.0] * len(prior)
    for (start, end), score in zip(pairwise(positions), scores, strict=True):
        share = math.exp(max(score - best, -700.0))
        weights[start + 1 : end + 1] = [share * max(weight, 1e-12) for weight in prior[start + 1 : end + 1]]
    for culprit, parent, _ in failed:
        weights[parent + 1 : culprit + 1] = [DENIED * value for value in weights[parent + 1 : culprit + 1]]
    total = math.fsum(weights)
    return [value / total for value in weights]


def _culprit(evidence: Evidence, key: Key, strength: float, step: float) -> Culprit:
    """The commits of which one made the step; those that cannot have are left out."""
    culprit, parent, _ = key
    problem = evidence.seen.problem
    possible = [at for at in range(parent + 1, culprit + 1) if problem.prior[at] > 0] or [culprit]
    return Culprit(problem.first[possible[0]], problem.first[possible[-1]], strength, step)


def _concluded(evidence: Evidence, answer: _Answer) -> SearchEnd:
    """What is said in the end."""
    problem = evidence.seen.problem
    shares = [0.0] * len(problem.commits)
    for position, first in enumerate(problem.first):
        shares[first] = answer.shares[position]
    if not answer.found:
        return replace(answer.stop or SearchEnd("inconclusive", "nothing was found"), shares=tuple(shares))
    culprit = answer.found[0]
    outcome: Literal["several", "range", "culprit"]
    outcome = "several" if len(answer.found) > 1 else "culprit" if culprit.first == culprit.last else "range"
    why = "; ".join(_words(evidence, blamed) for blamed in answer.found)
    return SearchEnd(outcome, why, tuple(shares), answer.found)


def _words(evidence: Evidence, culprit: Culprit) -> str:
    """A culprit, and what is known of it."""
    problem = evidence.seen.problem
    step = f"{evidence.said(culprit.step)}, evidence {culprit.evidence:,.0f} to 1"
    begin, end = (problem.commits[index].name[:12] for index in (culprit.first, culprit.last))
    if culprit.first == culprit.last:
        return f"commit {begin}: {step}"
    hidden = "; builds differ on their own, so that no single one stands out"
    skipped = evidence.seen.broken.keys() & range(problem.place[culprit.first], problem.place[culprit.last])
    return f"one of commits {begin} to {end}: {step}{'' if skipped else hidden}"
