"""How many calls a CUDA graph holds, and how often a sample replays it."""

import math

SEGMENT_S = 1.5e-3
"""Seconds of a segment on a GPU at most: its clock is so even that more rounds tell more than longer segments."""
SAMPLE_S, PROBED_S = 0.5e-3, 0.1e-3
"""Seconds of a sample on a GPU, whose events count in half microseconds; and of one that only shows whether values
are remembered."""
CALLS, MOST_REPLAYS = (200, 100, 50, 20, 10, 5, 2), 10
"""Calls in a CUDA graph, the most that take no longer than a sample, and replays of it in one sample at most."""
LAUNCH_S = 5e-6
"""Seconds that launching a graph takes. All replays are launched before the first begins by the device's clock."""


def replays_of(once: float, sample_s: float, most: int) -> tuple[int, int]:
    """Calls in a graph, `most` at most, and its replays in a sample, where a call takes `once` seconds."""
    calls = next((n for n in CALLS if n * once <= sample_s and n <= most), 1)
    return calls, max(1, min(math.ceil(sample_s / (calls * once)), MOST_REPLAYS))
