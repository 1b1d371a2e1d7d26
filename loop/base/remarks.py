"""What is said where it is noticed, once a process, and what a terminal would act on in it."""

import contextlib
import re
import sys

ESCAPES = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
"""Sequences that begin with ESC (ECMA-48): colours and cursor (CSI), titles and links (OSC), short ones."""
ACTED_ON = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Controls, and marks that change the direction of what follows (Unicode TR 9); line ends and tabs are none."""
_ACTS = re.compile(rf"{ESCAPES}|{ACTED_ON}|\r(?!\n)|[\ud800-\udfff]")


def inert(text: str) -> str:
    """`text` without escape sequences, a space for every other character that a terminal would act on.

    Bytes that were no UTF-8, such as those of a file's name, become U+FFFD: what is printed is UTF-8 throughout.
    """
    if text.isprintable():  # Most of what is shown is, and that is told quickly.
        return text

    def harmless(match: re.Match[str]) -> str:
        if len(match[0]) > 1:
            return ""
        return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else " "

    return _ACTS.sub(harmless, text)


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
