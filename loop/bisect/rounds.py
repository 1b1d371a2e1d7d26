"""Several probes at a time, each on a device of its own: which ones, and what their answers tell. Pure.

The search is followed along the answers that each try may have, the likeliest first. What it would ask for on the
way is the round. While one step is searched, these commits part the posterior into equal shares. Each probe is a
sequential test of its commit, which may end as unclear: the posterior takes every observation, whatever it said.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Literal

from loop.bisect.bisection import metric_of, next_move
from loop.bisect.confirming import pairs_say
from loop.bisect.journal import read
from loop.bisect.latency_search import Latency
from loop.bisect.model import Asked, Broken, Conclusion, Lost, Outcome, Problem, Try, Values
from loop.model.bisect import Claim, Stop

MOST = 24
"""Pairs of one probe at most."""
LEAST = 4
"""Pairs of one probe at least, save for those of a side that is evident sooner."""
SETTLED = math.log(199)
"""Log odds at which a probe has told the side of its commit: wrong in one case of 200."""
APART_LEAST, APART_Z = 6, 5.0
"""Pairs of an end, and standard errors, after which it differs."""
FOLLOWED = 4
"""Futures that are followed for each probe of a round at most."""
SUPPOSED = Stop(step=math.log1p(0.05), sd=0.0)
"""What is supposed before anything was observed, with a noise of 0 for unknown: what is tried beside the ends."""
Side = Literal["good", "bad", "unclear"]


def next_round(problem: Problem, journal: Sequence[Asked], width: int) -> tuple[Try, ...] | Conclusion:
    """`width` tries that go on at the same time, what `next_move` wants first; or the answer.

    Where fewer are worth it the others are repeats: what has to be observed often is spread over all devices.
    """
    first = next_move(problem, journal)
    if isinstance(first, Conclusion):
        return first
    chosen: list[Try] = []
    for wanted in _likeliest(problem, journal, first, FOLLOWED * width):
        if not any(_same(wanted, one) for one in chosen):
            chosen.append(wanted)
        if len(chosen) == width:
            return tuple(chosen)
    copies = math.ceil(width / len(chosen))
    least = LEAST if problem.metric == "latency" else 1
    return tuple(replace(one, batch=max(math.ceil(one.batch / copies), least)) for one in chosen * copies)[:width]


def taken(problem: Problem, journal: Sequence[Asked], answers: Sequence[Asked]) -> list[tuple[int, Asked]]:
    """What a round adds to the journal: the number of each answer that counts, and what it counts as.

    What was observed for the search counts at once. Pairs that were to confirm a suspect count only where the
    search asks for this very confirmation then: what it supposed when it asked for them was a guess.
    Of tries that were lost together one counts.
    """
    there = [(number, one) for number, one in enumerate(answers) if not isinstance(one.outcome, Lost)]
    there = there or [(0, answers[0])]
    found = [one for one in there if one[1].asked.claim is None]
    waiting = [one for one in there if one[1].asked.claim is not None]
    while waiting:
        wanted = next_move(problem, [*journal, *(one for _, one in found)])
        same = [one for one in waiting if isinstance(wanted, Try) and _same(one[1].asked, wanted)]
        if not same:
            break
        waiting.remove(same[0])
        found.append(_claimed(*same[0], wanted))
    return found


def _claimed(number: int, one: Asked, wanted: Try | Conclusion) -> tuple[int, Asked]:
    """A confirmation as the search asks for it."""
    assert isinstance(wanted, Try)
    return number, Asked(replace(one.asked, claim=wanted.claim), one.outcome)


def side(values: Values, stop: Stop) -> Side:
    """What the pairs of a commit with the good end say of its side, by Wald's sequential test.

    Without a step that is known only "bad" is ever said: the commit is evidently slower.
    """
    count, mean = len(values), fmean(values) if values else 0.0
    if count < (1 if stop.sd else LEAST):
        return "unclear"
    sd = stop.sd or max(stdev(values), 1e-9)
    if stop.step <= 0:
        return "bad" if mean >= APART_Z * sd / math.sqrt(count) and count >= APART_LEAST else "unclear"
    odds = count * stop.step * (mean - stop.step / 2) / sd**2
    return "unclear" if abs(odds) < SETTLED else "bad" if odds > 0 else "good"


def enough(values: Values, stop: Stop | None, claim: Claim | None = None, relink: int = 0) -> bool:
    """Whether a probe may end before all observations that it was asked for are made; `relink`: their layout."""
    if stop is None:
        return False
    if claim is not None:
        return len(values) >= LEAST and pairs_say({relink: list(values)}, claim)[0] != "open"
    return side(values, stop) != "unclear"


def _same(one: Try, other: Try) -> bool:
    """Whether two tries observe the same, for the same end."""
    ours, theirs = (
        (asked.commit, asked.against, asked.relink, asked.claim is None or asked.claim.number == 0)
        for asked in (one, other)
    )
    return ours == theirs and (one.claim is None) == (other.claim is None)


def _likeliest(problem: Problem, journal: Sequence[Asked], first: Try, most: int) -> Iterator[Try]:
    """What is asked for along the futures of a search, the likeliest first; of so many futures at most."""
    futures, known = [(-1.0, 0, list(journal))], _levels(problem, journal)
    for number in range(most):
        if not futures:
            return
        chance, _, told = heapq.heappop(futures)
        wanted = next_move(problem, told) if number else first
        if isinstance(wanted, Conclusion):
            continue
        wanted = _probe(problem, known, wanted)
        yield wanted
        for share, outcome in _answers(problem, told, wanted, known):
            if share > 0:
                order = len(futures) + most * number
                heapq.heappush(futures, (chance * share, order, [*told, Asked(wanted, outcome)]))


def _probe(problem: Problem, known: Stop, wanted: Try) -> Try:
    """A try as a sequential test, which costs one round however many observations it takes."""
    if problem.metric == "correctness":
        return wanted
    end = wanted.commit in (0, len(problem.commits) - 1)
    return replace(wanted, batch=MOST, stop=Stop(step=0.0 if end else known.step, sd=known.sd))


def _levels(problem: Problem, told: Sequence[Asked]) -> Stop:
    """The step between both ends, and the noise of a pair, as far as they are known."""
    seen, last = read(problem, told), problem.positions.last
    if seen.count(last) < APART_LEAST:
        return SUPPOSED
    levels = Latency(problem, seen).levels()
    return Stop(step=max(levels.step, 0.0), sd=max(levels.sd, 1e-6))


def _answers(problem: Problem, told: Sequence[Asked], wanted: Try, known: Stop) -> Iterator[tuple[float, Outcome]]:
    """What may come of a try, and how probable that is; of an end and of a confirmation, what is hoped for."""
    last = len(problem.commits) - 1
    if wanted.claim is not None or wanted.commit in (0, last):
        slow, broken = float(wanted.commit > 0), 0.0
    else:
        tried = {one.asked.commit: isinstance(one.outcome, Broken) for one in told}
        broken = sum(tried.values()) / (2 + len(tried))
        slow = _slow(problem, told, wanted)
    for chance, bad in ((slow, True), (1 - slow, False)):
        yield (1 - broken) * chance, _like(problem, known, wanted.batch, bad=bad)
    yield broken, Broken("a guess")


def _slow(problem: Problem, told: Sequence[Asked], wanted: Try) -> float:
    """Probability that the step is at a commit or before it."""
    seen = read(problem, told)
    at, last = seen.positions.place[wanted.commit], seen.positions.last
    known = seen.count(last) and (seen.count(0) or problem.metric == "latency")
    mass = metric_of(problem, seen).guesses(0, last) if known else seen.positions.prior
    return min(math.fsum(mass[: at + 1]), 1.0)


def _like(problem: Problem, known: Stop, count: int, *, bad: bool) -> Values:
    """Observations as those of an end, that scatter as they do."""
    if problem.metric == "correctness":
        return [float(not bad)] * count
    level = known.step * bad
    sd = known.sd or known.step / 3
    return [level + (sd if number % 2 else -sd) for number in range(count)]
