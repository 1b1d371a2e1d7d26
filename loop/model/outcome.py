"""What every action gives back, whatever else it finds."""

from loop.model.base import Model
from loop.model.verdict import Verdict


class Output(Model):
    """What every action gives back."""

    ok: bool
    """Whether it found nothing wrong."""
    message: str
    """One line on the outcome."""
    hint: str | None = None
    """What to do next, when something is wrong."""
    identity: str | None = None
    """What the result stands on; a resumed session repeats the step when this has changed."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts it leads to."""
    not_exercised: tuple[str, ...] = ()
    """What it did not run, and why."""
    learned: tuple[str, ...] = ()
    """What it shows, in sentences."""
    nothing_done: bool = False
    """Whether there was nothing to do: such a step passes, and avoids nothing."""
