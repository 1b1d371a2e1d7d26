"""How a worker says no."""

LATE_S = 20e-3
"""Work that goes on for longer after the stream is done was not all on the stream. What is shorter shows in the
output, which is read before: the host's clock cannot tell it from an interruption."""


class Refused(Exception):
    """The variant cannot do this call, or did not do it as it must: a finding, not a bug of loop."""


class Declined(Refused):
    """The variant itself said no, in so many words: a compiled one by its error number."""


DECLINED = (Declined, NotImplementedError)
"""How a variant says that it does not support a call: an error number, or `raise NotImplementedError`."""


def refuse_late(seconds: float) -> None:
    """Raise Refused where work went on for so long after the call's own stream was done."""
    if seconds > LATE_S:
        raise Refused(f"work went on for {seconds * 1e3:.0f} ms on another stream after its own was done")
