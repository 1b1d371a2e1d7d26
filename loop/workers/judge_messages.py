"""What the judge is asked, and what it replies."""

from typing import Any

from loop.calls.call import Call, Value
from loop.calls.plain import Plain
from loop.model.dtypes import Device
from loop.model.functions import Fill, Tolerance
from loop.model.measurement import MapPart, Mismatch, Span
from loop.workers.wire import Done, R, Request


class ToJudge(Request[R]):
    """A request that the judge answers."""


class Examined(Plain):
    """What one check of the environment found."""

    ok: bool
    message: str
    facts: dict[str, Any]
    """Fields of that check's own output."""


class Examine(ToJudge[Examined]):
    """Check the environment."""

    check: str
    threads: int
    device: Device


class Shapes(Plain):
    """What of a target's signature the judge needs."""

    inputs: dict[str, str]
    """Dimensions of each input, as in `B D`."""
    output: str
    """Those of the only output; empty where there are others."""
    choices: dict[str, tuple[str, ...]]
    """The choices of each attribute; none of a flag or a number."""
    outputs: dict[str, str]
    """Dimensions of each output; empty where the reference tells which there are."""
    types: dict[str, str]
    """Element types that are not the workload's."""


class Begin(ToJudge[Done]):
    """Become the judge of a target; whatever was known of another one is forgotten."""

    folder: str
    threads: int
    reference: str
    plain: str | None
    inputs: str | None
    """What makes the inputs, where that is not their kind of values."""
    form: str | None
    """What outputs are brought into before they are compared."""
    tolerance: dict[str, Tolerance]
    shapes: Shapes
    updates: dict[str, str]
    """Outputs that are inputs changed in place."""
    faults: tuple[tuple[str, str], ...] = ()
    """As if what, and the function that does so."""
    generator: str | None = None
    """What makes the inputs of a target, whatever they are."""
    passes: str = "positional"
    """How they reach the function."""
    is_class: bool = False
    """Whether functions are classes."""
    arguments: str | None = None
    """What gives the constructors' arguments."""
    checker: str | None = None
    """The task's own check of outputs."""
    given: tuple[str, ...] = ()
    """What it is called with."""
    alone: bool = False
    """Whether it decides alone."""


class Expected(Plain):
    """The judge knows the answer to a call."""

    doubt: str
    """Why the reference or the plain implementation must be wrong; empty where nothing is."""
    call: Call | None = None
    """The call with its tensors, where nobody but the judge knew them."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""
    unjudged: str = ""
    """Why nothing can be judged by this answer; empty where it can."""
    zeros_pass: bool = False
    """Whether zeros would be right."""


class Expect(ToJudge[Expected]):
    """Write the inputs of a call and work out its right answer; `twice`: and see that it comes out again."""

    call: Call
    values: tuple[Fill, ...]
    seed: int
    twice: bool
    parameters: dict[str, Value]
    """Keywords of the generator."""
    found: bool = False
    """Whether the reference tells which outputs there are."""
    draws: int = 1
    """Sets of values that a generator makes."""
    draw: int = 0
    """Which of them is that of the seed."""
    device: Device = "cpu"
    """Where the right answer is worked out, if there is room: large ones take minutes on a CPU."""
    needed: float = 0.0
    """Bytes that the reference takes, by the manifest's `memory`."""


class Discard(ToJudge[Done]):
    """Forget the answer to a call."""

    key: str


class Finding(Plain):
    """What is found in the worst of some outputs."""

    max_error: float
    plain_max_error: float | None
    wrong: int
    total: int
    message: str
    """What it loses beyond the plain implementation; empty when nothing."""
    first: Mismatch | None
    worst: Mismatch | None
    map: dict[str, tuple[MapPart, ...]]
    spans: dict[str, Span]
    allowed_error: float | None = None
    """What the element with the largest error may have."""
    output: str = ""
    """Which output it is about; empty where there is one."""
    checker: str = ""
    """What the task's own checker says against the outputs."""
    loose: bool = False
    """Whether the output is right by the stated tolerance, by which zeros would be, too."""
    unmoved: float = 0.0
    """How many times what rounding loses the right answers to two calls that had this output are apart."""
    tied: bool = False
    """Whether the wrong elements are indices of equal values."""
    unjudged: str = ""
    """Why the wrong elements say nothing of the variant; empty where they do."""
    fits: dict[str, bool] | None = None
    """As if what: what explains the wrong elements, and whether also the right ones. None where that was not asked
    for, or too little is wrong to tell."""

    @property
    def badness(self) -> tuple[int, bool, float]:
        """Order of findings: the worst counts."""
        return self.wrong, bool(self.message), self.max_error


class Compare(ToJudge[Finding]):
    """Hold the output files of a call against the right answer; and what is wrong against known faults."""

    call: Call
    outputs: tuple[str, ...]
    suspected: bool = False
    """Whether the faults are asked for."""
    before: str = ""
    """Key of a call with other values to which the same output was given; empty for none."""


class Told(Plain):
    """How many times what is allowed a mistake is off; 0 where that cannot be said."""

    excess: float


class Tell(ToJudge[Told]):
    """Put a mistake into the reference: do these inputs tell it from the right answer?"""

    call: Call
    other: str
    """Key of the call whose answer the mistake gives; empty for none."""
    mistake: dict[str, Any]


class Looked(Plain):
    """What could not show, whatever a variant does with it: names of inputs, attributes, outputs and weights."""

    fixed: tuple[str, ...]
    """Inputs with the same values under every seed."""
    single: tuple[str, ...]
    """Inputs that are one value everywhere."""
    positive: tuple[str, ...]
    """Inputs without a negative value."""
    unread: tuple[str, ...] = ()
    """Inputs that change no output of the reference."""
    ignored: tuple[str, ...] = ()
    """Attributes that change none."""
    unmoved: tuple[str, ...] = ()
    """Outputs that no input changes."""
    initial: tuple[str, ...] = ()
    """Parameters and buffers of a module that are all 1 or all 0, as constructors leave them."""


class Look(ToJudge[Looked]):
    """What inputs that were drawn could not show. `calls`: one workload under two seeds, on which the reference is
    asked what it reads; none: it is not asked."""

    calls: tuple[Expect, ...]


class Agreement(Plain):
    """Whether both sides of a property agree."""

    wrong: int
    total: int
    largest: float
    allowed: float


class Related(Plain):
    """The next call that a property asks for; else its finding, or nothing where it does not apply."""

    call: Call | None = None
    agreement: Agreement | None = None


class Relate(ToJudge[Related]):
    """Begin a property on a call whose inputs are there."""

    call: Call
    property: str
    seed: int


class GiveOutput(ToJudge[Related]):
    """Give the property the output that it asked for."""

    path: str
