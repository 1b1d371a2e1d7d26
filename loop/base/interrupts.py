"""Signal handling by flags: a handler stores the signal, and working code checks for it at safe points.

An exception from a handler could split a journal write, or be lost while Python forks.
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
"""Seconds in which further signals count as the first: terminal and parent process may both send one."""


_noted = SimpleNamespace(depth=0, number=0, at=0.0, obeyed=False)
"""State: are flags active; number (0: none) and time of the first signal; has Stopped been raised."""


def _note(number: int, frame: FrameType | None) -> None:
    """Handler: store the first signal. A second one ends the process at once; the journal stays usable."""
    if not _noted.number:
        _noted.number, _noted.at = number, time.monotonic()
    elif time.monotonic() - _noted.at > ONE_S:
        from loop.base.processes import end_all

        end_all()
        os._exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def signals_as_flags() -> Iterator[None]:
    """Store Ctrl-C, SIGTERM and SIGHUP as flags inside this block.

    Raises Stopped at the end for a signal that no check has reported. A nested block does nothing.
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
    """Raise Stopped if a signal has come. Call it only where no work is half done."""
    if _noted.number:
        _noted.obeyed = True
        raise Stopped(f"interrupted by {signal.Signals(_noted.number).name}", ExitCode.INTERRUPTED)
