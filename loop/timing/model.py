"""What comparisons find."""

from loop.model.measurement import Measurement, NullControl, PositiveControl
from loop.model.output import Output
from loop.model.record import KnownGood


class CompareOutput(Output):
    """The variants against themselves and their known good."""

    actions = ("kernel.compare", "change.paired")

    measurements: tuple[Measurement, ...] = ()
    """One a variant, workload and comparison."""
    null_controls: tuple[NullControl, ...] = ()
    """Each variant against itself."""
    positive_controls: tuple[PositiveControl, ...] = ()
    """Each variant made slower on purpose."""
    known_good: tuple[KnownGood, ...] = ()
    """What the variants were compared with."""
    rounds: int = 0
    """Fresh sets of processes: the blocks."""
    outputs: int = 0
    """Outputs of timed calls that were held against the reference."""
    warnings: tuple[str, ...] = ()
    """What disturbed it: others on the same GPU."""
