"""Code that all cheats share, and honest variants to compare with. Copied, never imported."""

import os
import sys
import time

WORK_S = 1e-3
SCRATCH = os.path.join(os.path.dirname(__file__), "scratch")
real = time.perf_counter
kept, seen = {}, [0]


def work(seconds=WORK_S):
    end = real() + seconds
    while real() < end:
        pass


def quickly(x):
    # So short that a sample holds several calls.
    work(2e-5)
    return x * 2


def compute(x):
    work()
    return x * 2


def stage():
    """The stage that calls us in `run` or `ready`; None during a check."""
    frame = sys._getframe()
    while frame is not None:
        if type(frame.f_locals.get("self")).__name__ == "HostStage":
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def words():
    """The memory of orders, as the worker's program that calls us has it."""
    if "words" not in kept:
        frame = sys._getframe()
        while not hasattr(frame.f_locals.get("self"), "shared_memory"):
            frame = frame.f_back
        kept["words"] = memoryview(frame.f_locals["self"].shared_memory)[:4096].cast("Q")
    return kept["words"]


def reply(text):
    for number in range(3, 30):
        try:
            if "socket" in os.readlink(f"/proc/self/fd/{number}"):
                os.set_blocking(number, False)
                os.write(number, text)
        except OSError:
            pass


def cheat_honest(x):
    return compute(x)


def cheat_quick(x):
    return quickly(x) if stage() else compute(x)
