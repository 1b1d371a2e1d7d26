"""A session's record, and what stands beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loop.model.output import outputs_of
from loop.model.profile import Profile
from loop.model.record import Finished, SessionHead, SessionRecord
from loop.profile.model import ProfileOutput

Recalled = Callable[[Finished], Sequence[str]]
"""From a step that failed to what earlier sessions say of it, in lines."""


@dataclass(frozen=True)
class View:
    """A record, and what stands beside it: everything that the report of a session is made from."""

    record: SessionRecord
    finished: Sequence[Finished]
    recalled: Recalled = lambda record: ()
    """What earlier sessions tell of a failed step."""
    calibration: str = ""
    """How earlier predictions held."""

    @property
    def head(self) -> SessionHead:
        """What was known when it began."""
        return self.record.head

    @property
    def profiles(self) -> list[Profile]:
        """Everything that was profiled."""
        return [profile for output in outputs_of(self.finished, ProfileOutput) for profile in output.profiles]
