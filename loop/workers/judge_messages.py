"""Requests to the judge and its replies, with types of `loop.model`, which workers never import."""

from typing import Any

from loop.calls.call import Call, Plain, Value
from loop.model.dtypes import Device
from loop.model.measurement import InputWeaknesses, Mismatch, Span
from loop.model.signature import Checker, Fill, Generator, Modules, PythonFunction, Signature, Tolerance
from loop.workers.messages import Request

NONE: dict[str, Any] = {}


class Examined(Plain):
    """What one check of the environment found."""

    ok: bool
    message: str
    facts: dict[str, Any]
    """Fields of the check's output."""


class Examine(Request[Examined]):
    """Check the environment."""

    check: str
    threads: int
    device: Device


class Begin(Request[None]):
    """Become the judge of a target and forget any earlier target."""

    folder: str
    threads: int
    signature: Signature
    reference: PythonFunction
    plain: PythonFunction | None
    generator: Generator | None
    modules: Modules | None
    checker: Checker | None
    faults: dict[str, PythonFunction]
    """Known faults: the words after "as if", and a function with that fault."""
    tolerance: dict[str, Tolerance]
    inputs: PythonFunction | None = None
    """Maker of a component's inputs; None: inputs come from the workload's fills."""
    form: PythonFunction | None = None
    """Brings outputs of a component into the form of comparison; None: compare them directly."""


class Expected(Plain):
    """The result of preparing a call's right answer."""

    doubt: str
    """Why the reference or the plain implementation must be wrong; empty if they agree."""
    call: Call | None = None
    """The call with its tensors, if only the judge could determine them; None otherwise."""
    notes: tuple[str, ...] = ()
    """What the inputs or the reference could not test."""
    unjudged: str = ""
    """Why no output of this call can be judged; empty if outputs can be judged."""
    zeros_pass: bool = False
    """Whether an all-zero output would pass."""


class Expect(Request[Expected]):
    """Write the inputs of a call and compute its right answer."""

    call: Call
    values: tuple[Fill, ...]
    """Kinds of values for each input; empty if a generator makes the inputs."""
    seed: int
    twice: bool
    """Whether the reference runs twice and both results have to agree."""
    parameters: dict[str, Value]
    """Keyword arguments of the generator."""
    finds: bool = False
    """Whether only the reference determines which outputs there are."""
    draws: int = 1
    """Number of input sets that a generator draws."""
    draw: int = 0
    """Position of the set with the workload's seed among the draws."""
    device: Device = "cpu"
    """Where the reference runs if memory allows; large ones take minutes on a CPU."""
    needed: float = 0.0
    """Bytes that the reference needs, from the manifest's `memory`; 0 if unknown."""


class Discard(Request[None]):
    """Forget the answer to a call."""

    key: str


class Finding(Plain):
    """How the worst of several outputs compares with the right answer."""

    max_error: float
    plain_max_error: float | None
    """Largest error of the plain implementation; None if there is none."""
    wrong: int
    total: int
    """Number of elements."""
    message: str = ""
    """By how much the error exceeds that of the plain implementation; empty if it does not."""
    first: Mismatch | None = None
    worst: Mismatch | None = None
    """`first`: the first wrong element. `worst`: the one with the largest error for its limit."""
    map: dict[str, tuple[Span, ...]] = NONE
    spans: dict[str, Span] = NONE
    """By dimension: errors of equal stretches (`map`), and the range of wrong indices (`spans`)."""
    allowed_error: float | None = None
    """Allowed error at the element with the largest error."""
    output: str = ""
    """Name of the output; empty if the call has only one."""
    checker: str = ""
    """Complaint of the task's own checker; empty if it accepts."""
    loose: bool = False
    """Whether it passes only by the stated tolerance, which an all-zero output passes too."""
    unmoved: float = 0.0
    """Distance of the right answers of two calls with this same output, in rounding errors."""
    tied: bool = False
    """Whether all wrong elements are indices that point to equal values (ties)."""
    unjudged: str = ""
    """Why the wrong elements prove nothing about the variant; empty if they do."""
    fits: dict[str, bool] | None = None
    """Known faults that explain the wrong elements, and whether each explains the right ones too.
    None if not requested, or if too few elements are wrong."""

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Sort key of findings: the largest is the worst."""
        return self.wrong, bool(self.message), self.max_error


class Compare(Request[Finding]):
    """Compare the output files of a call with the right answer."""

    call: Call
    outputs: tuple[str, ...]
    suspected: bool = False
    """Whether to compare wrong outputs with known faults."""
    before: str = ""
    """Key of an earlier call on other values that returned the same output; empty for none."""


class Look(Request[InputWeaknesses]):
    """Report what the inputs drawn so far could not show."""

    calls: tuple[Expect, ...]
    """One workload under two seeds, to test which inputs the reference reads; empty: no test."""


class Agreement(Plain):
    """Whether both sides of a property agree."""

    wrong: int
    total: int
    largest: float
    allowed: float
    """`largest` is the largest error, `allowed` the largest error that is allowed."""


class Relate(Request[Call | Agreement | None]):
    """Start a property on a call, or send the output that the property requested. Reply: the next
    call to make; at the end an Agreement, or None if the property does not apply."""

    call: Call
    property: str
    seed: int
    output: str = ""
    """File of the requested output; empty to start the property."""


OF_A_TARGET: tuple[type[Request[Any]], ...] = (Expect, Discard, Compare, Look, Relate)
"""Requests that need a target, that is, a Begin before them."""
