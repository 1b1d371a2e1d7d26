"""How a worker says no."""

from loop.model.causes import Cause

LATE_S = 20e-3
"""Work that goes on for longer after the stream is done was not all on the stream. What is shorter shows in the
output, which is read before: the host's clock cannot tell it from an interruption."""


class Refused(Exception):
    """The variant cannot do this call, or did not do it as it must: a finding, not a bug of loop."""

    def __init__(self, message: str, cause: Cause = "unusable", code: str = "", seed: int | None = None) -> None:
        super().__init__(message)
        self.cause, self.code, self.seed = cause, code, seed
        """Why, as a code; the variant's own error number; the emulator's seed that gives the fault again."""


def refuse_late(seconds: float) -> None:
    """Raise Refused where work went on for so long after the call's own stream was done."""
    if seconds > LATE_S:
        raise Refused(
            f"work went on for {seconds * 1e3:.0f} ms on another stream after its own was done", "left work"
        )
