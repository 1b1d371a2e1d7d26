"""What proving the gate finds."""

from loop.model.measurement import ControlResult
from loop.model.output import Output


class GateOutput(Output):
    """What the gate is worth: variants made to err on purpose, through the same checks as real candidates."""

    actions = ("kernel.prove_gate",)

    controls: tuple[ControlResult, ...] = ()
    """One a control and variant; honest candidates among them."""
    killed: int = 0
    """Controls that were rejected."""
    total: int = 0
    """Controls that err; honest candidates do not count."""
    survivors: tuple[str, ...] = ()
    """Controls that passed."""
    rejected: tuple[str, ...] = ()
    """Honest candidates that did not pass."""
    wrong_reasons: tuple[str, ...] = ()
    """Controls that were rejected for another reason than theirs."""
    not_applicable: tuple[str, ...] = ()
    """Controls that cannot be made here, and why."""
    indistinguishable: tuple[str, ...] = ()
    """Controls whose outputs stay within what is allowed on the target's inputs. They are not counted."""
