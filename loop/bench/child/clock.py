"""Timing inside one process: consecutive calls, sized by time. No torch.

Each timed sample has values of its own: inputs are rotated in their memory and read through another window, so
that neither an address nor a value comes back. One sample of a segment is drawn beforehand from those it is
expected to hold: its output is read as soon as the clock has stopped, and in a segment that is judged it takes the
values whose answer the judge knows.
"""

import random
import resource
from pathlib import Path
from time import perf_counter
from typing import Any

from loop.bench.child.refusal import Refused
from loop.bench.child.tensors import DTYPES, STEP_BYTES
from loop.bench.child.variants import Prepared, Run

SAMPLE_S = 20e-6
"""A sample holds as many calls as fill this, so that reading the clock (60 ns) stays below one per cent."""
MIN_SAMPLES, MAX_SAMPLES = 3, 1000
COLD_SAMPLES = 5
"""Samples of a segment for each of which the caches are emptied first: that takes milliseconds."""
REPLAYED, REPLAY_S = (200, 100, 50, 20, 10, 5, 2), 4e-3
"""Calls in a CUDA graph, the most that take no longer than this: events count in half microseconds."""
WARM_UP_S = 1e-3
WINDOWS = 32
"""Windows that a process draws for a call, and calls in a sample at most, so that none of them comes twice; with
the rotations there are millions of combinations."""
PROBES, CALLS = 3, 3
"""Draws of values to tell whether a variant remembers them, and calls on each: on fresh values, on the same again,
and once more, so that what happens at every other call comes to both."""


class TimedCall:
    """A prepared call with the windows it is timed through."""

    def __init__(self, prepared: Prepared, call: dict[str, Any], seed: int) -> None:
        self.prepared, self.draw = prepared, random.Random(seed)
        self.known = prepared.bind()
        self.offsets = [self._offsets(call) for _ in range(WINDOWS)]
        self.windows = [prepared.bind(offsets) for offsets in self.offsets]
        self._replayed: dict[int, list[int]] = {}

    def _offsets(self, call: dict[str, Any]) -> list[int]:
        steps = [STEP_BYTES // DTYPES[tensor["dtype"]][1] for tensor in call["inputs"]]
        pairs = zip(call["inputs"], steps, strict=True)
        return [self.draw.randrange(tensor["room"] // step + 1) * step for tensor, step in pairs]

    def sample(self, calls: int, *, known: bool = False, cold: bool = False) -> float:
        """Seconds of one call, from `calls` of them on fresh values; the last on the known ones if asked.

        Nothing tells that one from the others: any window can hold the known values, and it may come after fewer
        calls than usual, so that no call can be left out.
        """
        chosen = self._choose(calls, known=known)
        if known:
            self.prepared.aim(self.offsets[chosen[-1]])
        else:
            self.prepared.refresh(self.draw)
        self.prepared.poison()
        if cold:
            self.prepared.flush()
        return self.prepared.measure([self.windows[n] for n in chosen]) / len(chosen)

    def on_values(self, draw: random.Random, run: Run) -> float:
        """Seconds of one call on the values that `draw` comes to."""
        self.prepared.refresh(draw)
        self.prepared.poison()
        return self.prepared.measure([run])

    def _choose(self, calls: int, *, known: bool) -> list[int]:
        """Windows drawn anew, none twice; for a graph always the same ones."""
        if self.prepared.replays:
            return self._replayed.setdefault(calls, self.draw.choices(range(WINDOWS), k=calls))
        return self.draw.sample(range(WINDOWS), k=self.draw.randint(1, calls) if known else calls)


def time_segment(timed: TimedCall, seconds: float, *, cold: bool = False, judged: bool = True) -> dict[str, Any]:
    """Samples of one call's seconds: at least three, then until `seconds` are full.

    Returns `samples`, `calls` (calls in a sample), `own` (whether the variant timed itself), the `output` of the
    call whose answer is known, the names of `changed` inputs, and `writes` outside of tensors. Where it is not
    `judged`, no call is on the known values and the output is None: a process that met them twice could know them.
    """
    if timed.prepared.timed_apart:
        timed.known()
    if timed.prepared.own_seconds() is not None:
        return _own_segment(timed)
    once = timed.sample(1) if cold else _warm_up(timed, min(WARM_UP_S, seconds))
    calls = 1 if cold else calls_at_once(once, replays=timed.prepared.replays)
    expected = int(seconds / (calls * once))
    found = _segment(timed, calls, seconds, expected, cold=cold, judged=judged)
    return {**found, "calls": calls, "own": False}


def calls_at_once(once: float, *, replays: bool) -> int:
    """Calls in a sample, from the seconds of one: as many as the clock needs, and no more."""
    if replays:
        return next((calls for calls in REPLAYED if calls * once <= REPLAY_S), 1)
    return min(int(SAMPLE_S / once) + 1, WINDOWS) if once < SAMPLE_S else 1


def _own_segment(timed: TimedCall) -> dict[str, Any]:
    samples = [_own(timed) for _ in range(MIN_SAMPLES)]
    return {"samples": samples, "calls": 1, "own": True, **_evidence(timed)}


def _own(timed: TimedCall) -> float:
    timed.known()
    seconds = timed.prepared.own_seconds()
    if seconds is None:
        raise Refused("said how long one run took, and not of the next")
    return seconds


def _warm_up(timed: TimedCall, seconds: float) -> float:
    """Run until `seconds` are over; the shortest call."""
    shortest, end = float("inf"), perf_counter() + seconds
    while True:
        shortest = min(shortest, max(timed.sample(1), 1e-9))
        if perf_counter() > end:
            return shortest


def _segment(
    timed: TimedCall, calls: int, seconds: float, expected: int, *, cold: bool, judged: bool
) -> dict[str, Any]:
    """The sample that is looked at may be any of those to be expected: no early or late call is safe."""
    samples: list[float] = []
    evidence: dict[str, Any] = {}
    most, spent = COLD_SAMPLES if cold else MAX_SAMPLES, 0.0
    place = timed.draw.randrange(max(MIN_SAMPLES, min(expected, most)))
    while len(samples) <= max(place, MIN_SAMPLES - 1) or (spent < seconds and len(samples) < most):
        looked_at = len(samples) == place
        samples.append(timed.sample(calls, known=looked_at and judged, cold=cold))
        if looked_at:
            evidence = _evidence(timed)
        spent += samples[-1] * calls
    return {"samples": samples, **evidence, **({} if judged else {"output": None})}


def _evidence(timed: TimedCall) -> dict[str, Any]:
    """What a call left, read at once: nothing may still be on its way."""
    output = timed.prepared.output()
    return {"output": output, "changed": timed.prepared.changed(), "writes": timed.prepared.guarded.strays()}


def probe(timed: TimedCall) -> tuple[float, float]:
    """Shortest seconds of a call on values it has not seen, and of one on the values it has just seen.

    Nothing but the values tells the two apart: both find inputs just written, an output just poisoned and the same
    addresses, so that a cold cache is no memory.
    """
    run, fresh, again = timed.draw.choice(timed.windows), [], []
    for _ in range(1 + PROBES):
        seed = timed.draw.random()
        first, second, *_ = [timed.on_values(random.Random(seed), run) for _ in range(CALLS)]
        fresh.append(first)
        again.append(second)
    return min(fresh[1:]), min(again[1:])  # The first ones warm up.


def first_call_bytes(run: Run) -> int | None:
    """Memory that the first call adds to the process at its peak; None where the system does not tell.

    Linux: writing 5 to clear_refs resets the peak of the resident set (proc(5)).
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _peak_bytes()
    except OSError:
        run()
        return None
    run()
    return max(0, _peak_bytes() - before)


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
