"""A sign of life of a step, kept for a look at where its time went."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.record import Finished, StepKey


class StepTick(StepKey):
    """What a step said it was doing, and when. Nothing rests on it: a session without it is whole."""

    format: Literal[1] = 1
    """Format number."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """1, or more after a resume."""
    seconds: Annotated[float, Field(ge=0)]
    """Seconds since the step began."""
    note: str
    """What it was doing from then on."""
    heartbeat: bool = False
    """Whether it was said because nothing had been shown for a while."""

    def of(self, other: "StepTick | Finished") -> bool:
        """Whether it is of the same attempt at the same step."""
        mine = (self.run, self.pattern, self.step, self.attempt)
        return mine == (other.run, other.pattern, other.step, other.attempt)
