"""What is said of a call that gave no output."""

from loop.model.base import Model


class Fault(Model):
    """What was said of a call that gave no output."""

    text: str
    """One line without the workload: the same failure is known by it on another one."""
    code: str = ""
    """The variant's own error number, as in `error 3`, or the type of its exception."""
    seed: int | None = None
    """Of the emulator's schedule, which gives the fault again."""
