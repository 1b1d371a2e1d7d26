"""A section of SCALE.md: how many GPUs one head keeps busy, simulated. `-m tests.bench.scale_limits` prints it.

A head sends jobs and collects results one at a time. A GPU waits while its next job is in the queue of the head.
"""

import heapq
import random
import sys
from collections.abc import Iterator

JOB_S, SPREAD = 30.0, 0.5
"""A paired comparison, about; its logarithm is normal with this deviation."""
SHARES_MS = (5, 20, 50, 200)
"""Of the head, a job: half before it, half after."""
BUSY = 0.9
"""Share of their time in which GPUs work, below which the head is what breaks."""
GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
ROUNDS = 20
"""Jobs a GPU."""


def busy(share_s: float, gpus: int, seed: int = 0) -> float:
    """Share of their time in which so many GPUs work, where one head spends so long on each job."""
    draw, head, worked, end = random.Random(f"{share_s} {gpus} {seed}"), 0.0, 0.0, 0.0
    waiting = [(0.0, gpu, 0) for gpu in range(gpus)]
    while waiting:
        at, gpu, done = heapq.heappop(waiting)
        head = max(head, at) + share_s  # It collects what the GPU did, and sends the next job.
        if done == ROUNDS:
            end = max(end, at)
            continue
        took = JOB_S * draw.lognormvariate(0, SPREAD)
        worked += took
        heapq.heappush(waiting, (head + took, gpu, done + 1))
    return worked / (gpus * end)


def most(share_s: float) -> int:
    """The most GPUs that one head keeps about as busy as one that costs nothing."""
    return max((gpus for gpus in GPUS if busy(share_s, gpus) >= BUSY * busy(0.0, gpus)), default=0)


def section() -> Iterator[str]:
    """Lines of the page."""
    yield "## How many GPUs one head keeps busy, simulated"
    yield ""
    yield f"Jobs of {JOB_S:.0f} s in the middle; the logarithm of their time scatters by {SPREAD:g}. One head"
    yield "handles one job after the other. GPUs are tried by powers of two. They work for at least"
    yield f"{BUSY:.0%} of the time that a head without cost allows."
    yield ""
    yield "| Head's share of a job, ms | GPUs, at most | Jobs a second there | By arithmetic: job / share |"
    yield "|--:|--:|--:|--:|"
    for share in SHARES_MS:
        gpus = most(share / 1e3)
        rate = gpus * busy(share / 1e3, gpus) / JOB_S
        yield f"| {share} | {gpus:,} | {rate:.1f} | {JOB_S / share * 1e3:,.0f} |"
    yield ""
    yield "So the head breaks first, about where the arithmetic says. Longer jobs move that up."


if __name__ == "__main__":
    sys.stdout.write("\n".join(section()) + "\n")
