"""What a session keeps about the AI that worked on it."""

from typing import Literal

from loop.model.base import Stored
from loop.model.metering import AiUse


class AiGiven(Stored):
    """What agents reported and what the user stated; kept with the session, and so over a resume."""

    format: Literal[1] = 1
    """Format number."""
    stated_usd: float | None = None
    """What the AI cost, as the user says."""
    results: tuple[AiUse, ...] = ()
    """What agents reported of themselves, one a run."""
