"""Whether a session reached what its plan is for, and where its time went."""

from loop.model.base import Model


class Missed(Model):
    """A part of the objective that was not reached."""

    part: str
    """As the plan has it."""
    words: str
    """What there is instead, and how far off that is."""
    off: float | None
    """Share of what is asked by which it is off; None where no amount is asked."""


class Reached(Model):
    """Whether the objective was reached."""

    success: str
    """The plan's expression."""
    missed: tuple[Missed, ...] = ()
    """Its parts that are not true; empty when it was reached."""
    judged: bool = True
    """Whether it could be judged: one that speaks of variants needs a variant that was judged."""


class PhaseTime(Model):
    """What a phase was meant to take, and took."""

    name: str
    """Its name."""
    minutes: float
    """Minutes that the plan gives it."""
    seconds: float
    """Seconds of its steps."""


class Late(Model):
    """A step that took more than it should."""

    step: str
    """Pattern and step."""
    seconds: float
    """What it took."""
    expected_s: float
    """What earlier runs of it took, else its budget."""
    why: str
    """The cause as far as the records show it."""
