"""Requests to the judge and its replies, with types of `loop.model`, which workers never import."""

from typing import Any

from loop.calls.call import Call, Plain
from loop.model.dtypes import Device
from loop.model.measurement import Comparison, Weaknesses
from loop.model.target import Component, Target, Workload
from loop.workers.messages import Request


class EnvironmentFinding(Plain):
    """What one check of the environment found."""

    message: str
    output_fields: dict[str, Any]  # Fields of the check's output.
    is_ok: bool


class CheckEnvironment(Request[EnvironmentFinding]):
    """Check the environment."""

    check: str
    threads: int
    device: Device


class SetTarget(Request[None]):
    """Become the judge of a target and forget any earlier one."""

    target: Target
    component: Component | None  # `target` is its own target; None: `target` is the whole one.
    folder: str  # Folder of the manifest.
    threads: int


class PreparedAnswer(Plain):
    """The result of preparing a call's right answer."""

    doubt: str  # Why the reference or the plain implementation must be wrong; empty if they agree.
    call: Call | None = None  # With its tensors, if only the judge could determine them.
    notes: tuple[str, ...] = ()  # What the inputs or the reference could not test.
    unjudged_reason: str = ""  # Why no output of this call can be judged; empty if they can.
    passes_zeros: bool = False  # Whether an all-zero output would pass.


class PrepareAnswer(Request[PreparedAnswer]):
    """Write the inputs of a call and compute its right answer."""

    call: Call
    workload: Workload  # The workload of the call: sizes, attributes, kinds of values, seed.
    checks_determinism: bool = False  # Whether the reference runs twice, with results that agree.
    draws: int = 1  # Number of input sets that a generator draws.
    draw_position: int = 0  # Position of the set with the workload's seed among the draws.
    device: Device = "cpu"  # Where the reference runs if memory allows.
    reference_bytes: float = 0.0  # Bytes that it needs, by the manifest's `memory`; 0: unknown.


class DiscardAnswer(Request[None]):
    """Forget the answer to a call."""

    key: str


class Finding(Comparison):
    """How the worst of several outputs compares with the right answer."""

    max_error: float
    plain_excess: str = ""  # By how much the error exceeds that of `plain`; empty if it does not.
    passes_only_as_stated: bool = False
    """Whether it passes only by the stated tolerance, which an all-zero output passes too."""
    answer_distance: float = 0.0  # Of two calls' right answers with this output, in roundings.
    outputs_agree: bool = True  # Whether all outputs of the call agree up to the order of sums.
    is_integer: bool = False  # Then indices of equal values, for example, may be as right.
    unjudged_reason: str = ""  # Why wrong elements prove nothing here; empty if they do.

    @property
    def passes(self) -> bool:
        """Whether no element is wrong and no limit of the plain implementation is exceeded."""
        return not self.wrong and not self.plain_excess

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Sort key of findings: the worst has most wrong elements, then excess, then most error."""
        return self.wrong, bool(self.plain_excess), self.max_error


class Compare(Request[Finding]):
    """Compare the output files of a call with the right answer."""

    call: Call
    output_files: tuple[str, ...]
    tries_faults: bool = False  # Whether to compare wrong outputs with known faults.
    earlier_key: str = ""  # Of an earlier call on other values with the same output; or empty.


class FindBlindSpots(Request[Weaknesses]):
    """Report what the inputs drawn so far could not show."""

    pair: tuple[PrepareAnswer, ...]
    """One workload under two seeds, to test which inputs the reference reads; empty: no test."""


class AdvanceProperty(Request[Call | Finding | None]):
    """Start a property on a call, or send the output that the property requested. Reply: the next
    call to make; at the end a Finding, or None if the property does not apply."""

    call: Call
    property_name: str
    seed: int
    output_file: str = ""  # File of the requested output; empty to start the property.
