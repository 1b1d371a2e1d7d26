"""How long did a session take, where the computer's clock may have been set in the meantime?"""

from collections.abc import Sequence
from dataclasses import dataclass

SLACK_S, SLACK = 60.0, 0.1
"""What may pass outside the steps: a minute, and a tenth of the steps' own time. loop itself takes far less."""


@dataclass(frozen=True)
class Elapsed:
    """The time of a session."""

    seconds: float
    """From its first step to its last, interruptions left out."""
    own_seconds: float
    """Part of it outside any step."""
    note: str = ""
    """That the clock cannot be believed, and what was taken instead; empty where it can."""


def believed(wall_s: float, steps_s: Sequence[float]) -> Elapsed:
    """Wall time, unless it contradicts the seconds of the steps, which come from a clock that only goes forward.

    Steps follow one another, so that wall time is never below their sum; and loop does little between them. A
    clock that was set, or a machine that slept, breaks one or the other.
    """
    steps = sum(steps_s)
    outside = wall_s - steps
    if outside < -1.0:
        said = f"the clock was set back: {wall_s:.0f} s passed by it"
    elif outside > SLACK_S + SLACK * steps:
        said = f"the clock was set forward, or the machine slept: {wall_s:.0f} s passed by it"
    else:
        return Elapsed(wall_s, max(0.0, outside))
    return Elapsed(steps, 0.0, f"{said}, {steps:.0f} s in the steps by their own clock, which is what is charged")
