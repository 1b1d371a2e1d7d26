"""What the walk of a session tells, as it happens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loop.model.measurement import Segment
from loop.model.record import Finished, Started, Status


@dataclass(frozen=True)
class PatternBegan:
    """A pattern begins."""

    run: int
    name: str
    title: str
    index: int
    """Its place among the patterns walked so far, from 1."""
    of: int
    """Patterns known to be walked in all."""


@dataclass(frozen=True)
class StepDue:
    """A step is going to be done next. Nothing is written of it yet: whoever drives may stop here."""

    pattern: str
    step: str


@dataclass(frozen=True)
class StepBegan:
    """A step begins; its record is written before anything else happens."""

    started: Started


@dataclass(frozen=True)
class Ticked:
    """A sign of life. `heartbeat` is set when nothing was shown for 30 s."""

    started: Started
    seconds: float
    note: str
    heartbeat: bool


@dataclass(frozen=True)
class StepEnded:
    """A step has ended; its record and samples are to be written before the next one begins."""

    finished: Finished
    samples: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    replayed: bool = False
    """True when the record stands from before a resume."""


@dataclass(frozen=True)
class PatternEnded:
    """A pattern has ended."""

    run: int
    name: str
    status: Status
    seconds: float
    answered_by: str | None = None
    """The pattern that answers its outcome."""


Happening = PatternBegan | StepDue | StepBegan | Ticked | StepEnded | PatternEnded
