"""What the judge is asked, and what it replies."""

from typing import Any

from loop.calls.call import Call
from loop.calls.plain import Plain
from loop.model.dtypes import Device
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


class Tolerance(Plain):
    """What an element may be off."""

    atol: float
    rtol: float


class Shapes(Plain):
    """What of a target's signature the judge needs."""

    inputs: dict[str, str]
    """Dimensions of each input, as in `B D`."""
    output: str
    choices: dict[str, tuple[str, ...]]
    """The choices of each attribute; none of a flag or a number."""


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
    faults: tuple[tuple[str, str], ...] = ()
    """As if what, and the function that does so."""


class Values(Plain):
    """What the values of one input are."""

    kind: str
    scale: float
    axis: int | None
    """Along which one index is NaN."""


class Expected(Plain):
    """The judge knows the answer to a call."""

    doubt: str
    """Why the reference or the plain implementation must be wrong; empty where nothing is."""


class Expect(ToJudge[Expected]):
    """Write the inputs of a call and work out its right answer; `twice`: and see that it comes out again."""

    call: Call
    values: tuple[Values, ...]
    seed: int
    twice: bool


class Discard(ToJudge[Done]):
    """Forget the answer to a call."""

    key: str


class Wrong(Plain):
    """A wrong element; None stands for NaN."""

    index: dict[str, int]
    expected: float | None
    got: float | None
    allowed: float
    around: tuple[tuple[float | None, ...], ...]
    """Expected and got of the elements beside it."""


class Part(Plain):
    """A stretch of one dimension: its wrong elements, and the largest error."""

    first: int
    last: int
    wrong: int
    largest: float | None


class Stretch(Plain):
    """The first and the last index with a wrong element, how many there are, and the size of the dimension."""

    first: int
    last: int
    count: int
    size: int


class Finding(Plain):
    """What is found in the worst of some outputs."""

    max_error: float
    plain_max_error: float | None
    wrong: int
    total: int
    message: str
    """What it loses beyond the plain implementation; empty when nothing."""
    first: Wrong | None
    worst: Wrong | None
    map: dict[str, tuple[Part, ...]]
    spans: dict[str, Stretch]
    allowed_error: float | None = None
    """What the element with the largest error may have."""
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


class Told(Plain):
    """How many times what is allowed a mistake is off; 0 where that cannot be said."""

    excess: float


class Tell(ToJudge[Told]):
    """Put a mistake into the reference: do these inputs tell it from the right answer?"""

    call: Call
    other: str
    """Key of the call whose answer the mistake gives; empty for none."""
    mistake: dict[str, Any]


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
