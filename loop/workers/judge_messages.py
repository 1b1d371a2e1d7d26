"""What the judge is asked, and what it replies. It knows nouns of `loop.model`; a worker does not import them."""

from typing import Any

from loop.calls.call import Call, Plain, Value
from loop.model.dtypes import Device
from loop.model.measurement import Looked, Mismatch, Span
from loop.model.signature import Checker, Fill, Generator, Modules, PythonFunction, Signature, Tolerance
from loop.workers.messages import Request

NONE: dict[str, Any] = {}


class Examined(Plain):
    """What one check of the environment found."""

    ok: bool
    message: str
    facts: dict[str, Any]
    """Fields of that check's own output."""


class Examine(Request[Examined]):
    """Check the environment."""

    check: str
    threads: int
    device: Device


class Begin(Request[None]):
    """Become the judge of a target; whatever was known of another one is forgotten."""

    folder: str
    threads: int
    signature: Signature
    reference: PythonFunction
    plain: PythonFunction | None
    generator: Generator | None
    modules: Modules | None
    checker: Checker | None
    faults: dict[str, PythonFunction]
    """Known faults: the words after "as if", and the function with that fault."""
    tolerance: dict[str, Tolerance]
    inputs: PythonFunction | None = None
    """Makes the inputs, where their kinds of values do not."""
    form: PythonFunction | None = None
    """Brings outputs into the form in which they are compared."""


class Expected(Plain):
    """The judge knows the answer to a call."""

    doubt: str
    """Why the reference or the plain implementation must be wrong; empty where nothing is."""
    call: Call | None = None
    """The call with its tensors, where only the judge knew them."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""
    unjudged: str = ""
    """Why nothing can be judged by this answer; empty where it can."""
    zeros_pass: bool = False
    """Whether zeros would be right."""


class Expect(Request[Expected]):
    """Write the inputs of a call and work out its right answer."""

    call: Call
    values: tuple[Fill, ...]
    seed: int
    twice: bool
    """Whether it is worked out twice, and both have to agree."""
    parameters: dict[str, Value]
    """Keywords of the generator."""
    finds: bool = False
    """Whether only the reference knows the outputs."""
    draws: int = 1
    """Sets of values that a generator makes."""
    draw: int = 0
    """Number of the set that has the seed."""
    device: Device = "cpu"
    """Where the right answer is worked out, if there is room: large ones take minutes on a CPU."""
    needed: float = 0.0
    """Bytes that the reference takes, by the manifest's `memory`."""


class Discard(Request[None]):
    """Forget the answer to a call."""

    key: str


class Finding(Plain):
    """How the worst of some outputs compares with the right answer."""

    max_error: float
    plain_max_error: float | None
    wrong: int
    total: int
    message: str = ""
    """What it loses beyond the plain implementation; empty when nothing."""
    first: Mismatch | None = None
    worst: Mismatch | None = None
    map: dict[str, tuple[Span, ...]] = NONE
    spans: dict[str, Span] = NONE
    allowed_error: float | None = None
    """What is allowed for the element with the largest error."""
    output: str = ""
    """Which output it is about; empty where there is one."""
    checker: str = ""
    """The complaint of the task's own checker."""
    loose: bool = False
    """Whether the output is right by the stated tolerance, by which zeros would be, too."""
    unmoved: float = 0.0
    """Distance of the right answers to two calls that had this output, in units of their rounding errors."""
    tied: bool = False
    """Whether the wrong elements are indices of equal values."""
    unjudged: str = ""
    """Why the wrong elements say nothing about the variant; empty where they do."""
    fits: dict[str, bool] | None = None
    """Known faults that explain the wrong elements, and whether they explain also the right ones. None where that
    was not asked for, or too little is wrong to tell."""

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Order of findings: the worst counts."""
        return self.wrong, bool(self.message), self.max_error


class Compare(Request[Finding]):
    """Compare the output files of a call with the right answer."""

    call: Call
    outputs: tuple[str, ...]
    suspected: bool = False
    """Whether wrong outputs are compared with known faults, too."""
    before: str = ""
    """Key of a call with other values to which the same output was given; empty for none."""


class Look(Request[Looked]):
    """Name what the inputs drawn so far could not show."""

    calls: tuple[Expect, ...]
    """One workload under two seeds, on which the reference is asked what it reads; empty: it is not asked."""


class Agreement(Plain):
    """Whether both sides of a property agree."""

    wrong: int
    total: int
    largest: float
    allowed: float


class Relate(Request[Call | Agreement | None]):
    """Begin a property on a call whose inputs are there, or give it the output that it asked for.

    The reply: the next call that it asks for; else its finding, or nothing where it does not apply.
    """

    call: Call
    property: str
    seed: int
    output: str = ""
    """File of the output that it asked for; empty to begin."""


OF_A_TARGET: tuple[type[Request[Any]], ...] = (Expect, Discard, Compare, Look, Relate)
"""Requests about the target that was begun."""
