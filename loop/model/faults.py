"""What is said of a failing call: why it gave no output, or which known fault its output is as if."""

from loop.model.base import Model


class Fit(Model):
    """A fault that explains the wrong elements of an output."""

    as_if: str
    """As if what: `the causal mask were left out`."""
    whole: bool
    """Whether it explains the right elements too: else it is at work in the wrong places alone."""


class Fault(Model):
    """What was said of a call that gave no output."""

    text: str
    """One line without the workload: the same failure is known by it on another one."""
    code: str = ""
    """The variant's own error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """Of the emulator's schedule, which gives the fault again."""
