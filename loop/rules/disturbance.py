"""Which samples and rounds other programs disturbed, by the time that a worker had to wait for its core. Pure.

The wait is the kernel's run-queue delay, read from outside the worker: it says how long something else ran, and
nothing of the result. It is never subtracted: a variant whose own threads wait for each other would gain by it. A
sample is left out, or kept as it was measured.
"""

from collections.abc import Iterable, Sequence

from loop.model.measurement import CLEAN, Segment
from loop.rules.device_health import Drop, SideName

ENOUGH = 3
"""Samples that a median needs."""
APART = 0.1
"""Shares of waiting by which the two sides of a round may differ: their ratio is off by as much."""
NOTEWORTHY = 0.1
"""Share of disturbed samples from which on it is said."""


def clean(segment: Segment) -> tuple[float, ...]:
    """Seconds of the samples that nothing disturbed; where there are too few, of those disturbed least."""
    if len(segment.waited) != len(segment.seconds):
        return segment.seconds
    return tuple(segment.seconds[place] for place in _chosen(segment))


def _chosen(segment: Segment) -> list[int]:
    """Places of the samples that count."""
    shares = _shares(segment)
    sound = [place for place, share in enumerate(shares) if share <= CLEAN]
    return sound if len(sound) >= ENOUGH else sorted(range(len(shares)), key=shares.__getitem__)[:ENOUGH]


def _shares(segment: Segment) -> list[float]:
    """Share of its time that each sample waited."""
    return [min(wait / max(took, 1e-12), 1.0) for wait, took in zip(segment.waited, segment.seconds, strict=True)]


def waiting(segments: Iterable[Segment]) -> float:
    """Share of its time that a side waited in the samples that count; 0 where the system does not tell."""
    told = [segment for segment in segments if len(segment.waited) == len(segment.seconds)]
    pairs = [(segment.waited[place], segment.seconds[place]) for segment in told for place in _chosen(segment)]
    return sum(wait for wait, _ in pairs) / max(sum(took for _, took in pairs), 1e-12) if pairs else 0.0


def drop(reference: Sequence[Segment], candidate: Sequence[Segment]) -> Drop | None:
    """Why a round does not count: other programs took the core from one side and not from the other."""
    theirs, ours = waiting(reference), waiting(candidate)
    if abs(theirs - ours) <= APART:
        return None
    side: SideName = "reference" if theirs > ours else "candidate"
    shares = f"{theirs:.0%} of the reference's time, {ours:.0%} of the candidate's"
    return Drop(side, f"other programs took the core for {shares}")


def said(segments: Iterable[Segment]) -> str:
    """What is to be said of other programs when everything was timed; empty when they hardly disturbed it."""
    shares = [share for one in segments if len(one.waited) == len(one.seconds) for share in _shares(one)]
    disturbed = sum(share > CLEAN for share in shares) / max(len(shares), 1)
    if disturbed < NOTEWORTHY:
        return ""
    return (
        f"other programs took the core during {disturbed:.0%} of the samples: those were left out where possible"
    )
