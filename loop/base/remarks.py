"""What is said where it is noticed, once a process: damage that is left out, a folder that is not used."""

import contextlib
import sys

from loop.base.terminals import inert

_SAID: set[str] = set()


def remark(text: str) -> None:
    """A line on standard error, the first time that this process says it."""
    if text in _SAID:
        return
    _SAID.add(text)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # Nobody may be there to read it.
        sys.stderr.write(f"loop: {inert(text)}\n")
        sys.stderr.flush()


def forget() -> None:
    """Say everything anew: another command begins in this process."""
    _SAID.clear()
