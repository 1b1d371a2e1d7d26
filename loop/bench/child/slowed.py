"""A variant made slower by a known share: what a measurement must be able to see."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any

from loop.bench.child.variants import Loaded, Prepared, Run

CALIBRATIONS = 9


class Slowed:
    """Another variant whose every call is followed by a loop that takes a fixed share of its time."""

    def __init__(self, loaded: Loaded, share: float) -> None:
        self.loaded, self.share = loaded, share

    def prepare(self, call: dict[str, Any], layout: str = "contiguous") -> "SlowedCall":
        """Bring a call's inputs into memory, and find out how long it takes."""
        return SlowedCall(self.loaded.prepare(call, layout), self.share)


class SlowedCall:
    """A prepared call followed by a loop; everything else is the call's own."""

    def __init__(self, prepared: Prepared, share: float) -> None:
        self.prepared, self.share = prepared, share
        run = prepared.bind()
        run()
        self.extra_ns = int(share * 1e9 * median(prepared.measure([run]) for _ in range(CALIBRATIONS)))

    def bind(self, offsets: Sequence[int] | None = None) -> Run:
        """The call, and then the loop."""
        run, extra_ns = self.prepared.bind(offsets), self.extra_ns
        if self.prepared.replays:
            return run

        def both() -> None:
            run()
            end = perf_counter_ns() + extra_ns
            while perf_counter_ns() < end:
                pass

        return both

    def measure(self, runs: Sequence[Run]) -> float:
        """As the call; where a loop on the host would slow nothing, some of the calls are made once more."""
        more = max(1, round(self.share * len(runs))) if self.prepared.replays else 0
        return self.prepared.measure([*runs[:more], *runs])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.prepared, name)
