"""Which samples and rounds other programs disturbed, by the time that a worker had to wait for its core. Pure.

The wait is the kernel's run-queue delay, read from outside the worker: it says how long something else ran, and
nothing of the result. It is never subtracted: a variant whose own threads wait for each other would gain by it. A
sample is left out, or kept as it was measured.

On a machine whose two cores were kept busy, samples of one call with two threads took 0.25 ms without a wait and 7
to 15 ms with one. A ratio of rounds scattered by 175 % (sd); by 9 % where only samples without a wait count.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loop.base.stats import median
from loop.model.measurement import CLEAN, Segment
from loop.timing.device_health import Drop, SideName

ENOUGH = 3
"""Samples that a median needs."""
APART = 0.1
"""Share by which the time that was left to one side of a round may differ from the other's: the ratio is off by as
much."""
LEAST = 0.1
"""Share of its time that a side has to be left."""
NOTEWORTHY = 0.1
"""Share of disturbed samples from which on it is said."""


@dataclass(frozen=True)
class Sample:
    """Seconds of one call, and the share of them that it waited."""

    seconds: float
    share: float


def samples(segment: Segment) -> list[Sample]:
    """The samples of a segment; without a wait where the system does not tell."""
    waited = segment.waited if len(segment.waited) == len(segment.seconds) else (0.0,) * len(segment.seconds)
    pairs = zip(segment.seconds, waited, strict=True)
    return [Sample(took, min(wait / max(took, 1e-12), 1.0)) for took, wait in pairs]


def counted(segments: Iterable[Segment]) -> list[list[Sample]]:
    """What counts of a side's segments in one round, segment by segment: the samples that nothing disturbed.

    Segments with too few of them are left out; where all have too few, their clean samples count together, and
    where these are too few still, the least disturbed ones.
    """
    chosen = list(segments)
    every = [samples(segment) for segment in chosen]
    clean = [[one for one in group if one.share <= CLEAN] for group in every]
    told = any(segment.waited for segment in chosen)
    enough = [group for group in clean if len(group) >= ENOUGH] if told else every
    if enough:
        return enough
    together = sorted((one for group in every for one in group), key=lambda one: one.share)
    sound = sum(map(len, clean))
    return [together[: max(sound, ENOUGH)]]


def log_time(segments: Iterable[Segment]) -> float:
    """Logarithm of the seconds that a call of a side took in one round: the mean over its segments' medians."""
    logs = [math.log(median([one.seconds for one in group])) for group in counted(segments)]
    return sum(logs) / len(logs)


def waiting(segments: Iterable[Segment]) -> float:
    """Share of its time that a side waited in the samples that count; 0 where the system does not tell."""
    chosen = [one for group in counted(segments) for one in group]
    return sum(one.share * one.seconds for one in chosen) / max(sum(one.seconds for one in chosen), 1e-12)


def drop(reference: Sequence[Segment], candidate: Sequence[Segment]) -> Drop | None:
    """Why a round does not count: other programs took the core from one side more than from the other."""
    theirs, ours = waiting(reference), waiting(candidate)
    left = [max(1 - share, 1e-3) for share in (theirs, ours)]
    if min(left) >= LEAST and abs(math.log(left[0] / left[1])) <= APART:
        return None
    side: SideName = "reference" if theirs > ours else "candidate"
    shares = f"{theirs:.0%} of the reference's time, {ours:.0%} of the candidate's"
    return Drop(side, f"other programs took the core for {shares}")


def said(segments: Iterable[Segment]) -> str:
    """What is to be said of other programs when everything was timed; empty when they hardly disturbed it."""
    shares = [one.share for segment in segments for one in samples(segment)]
    disturbed = sum(share > CLEAN for share in shares) / max(len(shares), 1)
    if disturbed < NOTEWORTHY:
        return ""
    return (
        f"other programs took the core during {disturbed:.0%} of the samples: those were left out where possible"
    )
