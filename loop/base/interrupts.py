"""Signals are flags: a handler notes one, and whoever works looks between two things that belong together.

An exception out of a handler comes between a line on disk and its number, or is dropped where Python forks.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType, SimpleNamespace

from loop.base.errors import ExitCode, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ONE_S = 1.0
"""Signals that come so shortly after the first are one with it: a terminal and a parent both send theirs."""


_noted = SimpleNamespace(depth=0, number=0, at=0.0, obeyed=False)
"""What came while signals are flags: how many asked for flags, the first signal (0 before it), when it came, and
whether somebody has seen it, and ends."""


def _note(number: int, frame: FrameType | None) -> None:
    """Note the first signal. A later one ends the process now: what is on disk is whole, or a torn last line."""
    if not _noted.number:
        _noted.number, _noted.at = number, time.monotonic()
    elif time.monotonic() - _noted.at > ONE_S:
        from loop.base.processes import end_all

        end_all()
        os._exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def signals_as_flags() -> Iterator[None]:
    """While it lasts Ctrl-C, SIGTERM and a closed terminal are flags; Stopped at its end where nobody saw one.

    Inside of another one it only looks: the outermost decides how long signals are flags.
    """
    if _noted.depth:
        yield
        return
    before = {name: signal.signal(name, _note) for name in SIGNALS}
    _noted.depth, _noted.number, _noted.obeyed = 1, 0, False
    try:
        yield
        if not _noted.obeyed:
            raise_if_signalled()
    finally:
        _noted.depth, _noted.number = 0, 0
        for name, handler in before.items():
            signal.signal(name, handler)


def raise_if_signalled() -> None:
    """Raise Stopped where a signal was noted: nothing is half done here."""
    if _noted.number:
        _noted.obeyed = True
        raise Stopped(f"interrupted by {signal.Signals(_noted.number).name}", ExitCode.INTERRUPTED)
