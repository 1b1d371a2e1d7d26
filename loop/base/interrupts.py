"""Signal handling by flags: a handler stores the signal, and the code looks at it at safe points.

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
SAME_SIGNAL_S = 1.0  # Seconds in which a second signal counts as the first: terminal and parent may both send one.

_signal_state = SimpleNamespace(is_active=False, number=0, arrived_at=0.0, is_reported=False)
"""`number`: the first signal; 0: none. `is_active`: inside `signals_as_flags`. `is_reported`: whether
Stopped was raised for the signal."""


def store_signal_number(number: int) -> None:
    """Store a signal that another handler caught, so that `raise_if_signalled` reports it."""
    _signal_state.number = number


def _store_signal(number: int, frame: FrameType | None) -> None:
    """Signal handler: store the first signal. A further one, more than `SAME_SIGNAL_S` later, kills this process
    and its children."""
    if not _signal_state.number:
        _signal_state.number, _signal_state.arrived_at = number, time.monotonic()
    elif time.monotonic() - _signal_state.arrived_at > SAME_SIGNAL_S:
        from loop.base.processes import kill_all_children

        kill_all_children()
        os._exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def signals_as_flags() -> Iterator[None]:
    """Store the first signal in this block as a flag, for `raise_if_signalled`; another kills this process and its
    children. Raises Stopped at once for a signal that another handler stored, and at the end for one that was not
    reported. Inside another such block it changes nothing."""
    if _signal_state.is_active:
        yield
        return
    raise_if_signalled()
    _signal_state.is_active, _signal_state.is_reported = True, False
    previous_handlers = {name: signal.signal(name, _store_signal) for name in SIGNALS}
    try:
        yield
        if not _signal_state.is_reported:
            raise_if_signalled()
    finally:
        _signal_state.is_active, _signal_state.number = False, 0
        for name, handler in previous_handlers.items():
            signal.signal(name, handler)


def raise_if_signalled() -> None:
    """Raise Stopped if a signal has come. Call it only where no work is half done."""
    if _signal_state.number:
        _signal_state.is_reported = True
        raise Stopped(f"interrupted by {signal.Signals(_signal_state.number).name}", ExitCode.INTERRUPTED)
