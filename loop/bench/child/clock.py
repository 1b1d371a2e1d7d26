"""Timing inside one process: consecutive calls, sized by time. No torch."""

import resource
import time
from pathlib import Path
from typing import Any

from loop.bench.child.refusal import Refused
from loop.bench.child.variants import Prepared

SAMPLE_S = 20e-6
"""A sample holds as many calls as fill this, so that reading the clock (60 ns) stays below one per cent."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
WARM_UP_S = 1e-3


def time_segment(prepared: Prepared, seconds: float) -> dict[str, Any]:
    """Samples of one call's seconds: at least three, then until `seconds` are full.

    Returns `samples`, `calls` (calls in a sample) and `own` (whether the variant timed itself).
    """
    prepared.run()
    own = prepared.own_seconds()
    if own is not None:
        return {"samples": [_own(prepared) for _ in range(MIN_SAMPLES)], "calls": 1, "own": True}
    once = _warm_up(prepared, min(WARM_UP_S, seconds))
    calls = max(1, int(SAMPLE_S / once) + 1) if once < SAMPLE_S else 1
    return {"samples": _samples(prepared, calls, seconds), "calls": calls, "own": False}


def _own(prepared: Prepared) -> float:
    prepared.run()
    seconds = prepared.own_seconds()
    if seconds is None:
        raise Refused("said how long one run took, and not of the next")
    return seconds


def _warm_up(prepared: Prepared, seconds: float) -> float:
    """Run until `seconds` are over; the shortest call."""
    shortest, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        prepared.run()
        now = time.perf_counter()
        shortest = min(shortest, now - begin)
        if now > end:
            return shortest


def _samples(prepared: Prepared, calls: int, seconds: float) -> list[float]:
    run, clock = prepared.run, time.perf_counter_ns
    samples: list[float] = []
    end = clock() + int(seconds * 1e9)
    while len(samples) < MIN_SAMPLES or (clock() < end and len(samples) < MAX_SAMPLES):
        begin = clock()
        for _ in range(calls):
            run()
        samples.append((clock() - begin) / calls / 1e9)
    return samples


def first_call_bytes(prepared: Prepared) -> int | None:
    """Memory that the first call adds to the process at its peak; None where the system does not tell.

    Linux: writing 5 to clear_refs resets the peak of the resident set (proc(5)).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _peak_bytes()
    except OSError:
        prepared.run()
        return None
    prepared.run()
    return max(0, _peak_bytes() - before)


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
