"""What a trace of torch's profiler tells."""

from loop.workers import checking
from loop.workers.messages import Kernel

EVENTS = [
    {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "ts": 1, "dur": 7.937},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 2, "dur": 1.0, "args": {"bytes": 64}},
    {"ph": "X", "cat": "kernel", "name": "void second<float>(float*)", "ts": 30.5, "dur": 2.5, "args": {}},
    {"ph": "X", "cat": "kernel", "name": "first", "ts": 9.25, "dur": 1.25, "args": {"registers per thread": 40}},
    {"ph": "M", "name": "process_name"},
]
"""Of a Chrome trace that torch writes."""


def test_a_trace_tells_kernels_in_their_order() -> None:
    """Copies, and what the profiler itself did, are none."""
    expected = (Kernel("first", 1.25, 40), Kernel("void second<float>(float*)", 2.5, None))
    assert expected == checking.kernels_in({"schemaVersion": 1, "traceEvents": EVENTS})
    assert not checking.kernels_in({})
