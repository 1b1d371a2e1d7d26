"""The one place where calls are timed by the clock of the host. No torch."""

from collections.abc import Callable, Iterable
from time import perf_counter_ns


def seconds_of(runs: Iterable[Callable[[], None]]) -> float:
    """Seconds of these calls, one after the other.

    By the process's clock as it was before any of them could replace it: it is looked up once, before the first.
    """
    clock = perf_counter_ns
    begin = clock()
    for run in runs:
        run()
    return (clock() - begin) / 1e9
