"""What the judge and workers are asked, and what they reply."""

from typing import Any

from loop.calls.call import Call, Plain, Terms, Value
from loop.model.dtypes import Device, Layout
from loop.model.functions import Fill, Tolerance
from loop.model.measurement import MapPart, Mismatch, Span
from loop.workers.wire import Done, R, Request

Mistake = dict[str, Any]
"""The mistake that a control makes on purpose, in the words of `loop.proving.negative_controls`."""


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
    """Dimensions of the only output; empty where there are others."""
    choices: dict[str, tuple[str, ...]]
    """The choices of each attribute; none of a flag or a number."""
    outputs: dict[str, str]
    """Dimensions of each output; empty where only the reference knows the outputs."""
    types: dict[str, str]
    """Element types that are not the workload's."""


class Begin(ToJudge[Done]):
    """Become the judge of a target; whatever was known of another one is forgotten."""

    folder: str
    threads: int
    reference: str
    plain: str | None
    inputs: str | None
    """The function that makes the inputs, where their kinds of values do not."""
    form: str | None
    """The function that brings outputs into the form in which they are compared."""
    tolerance: dict[str, Tolerance]
    shapes: Shapes
    updates: dict[str, str]
    """Outputs that are inputs changed in place."""
    faults: tuple[tuple[str, str], ...] = ()
    """Known faults: the words after "as if", and the function with that fault."""
    generator: str | None = None
    """The target's own generator of inputs."""
    passes: str = "positional"
    """How they reach the function."""
    is_class: bool = False
    """Whether functions are classes."""
    arguments: str | None = None
    """The function that gives the constructors' arguments."""
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
    """The call with its tensors, where only the judge knew them."""
    notes: tuple[str, ...] = ()
    """What could not be exercised."""
    unjudged: str = ""
    """Why nothing can be judged by this answer; empty where it can."""
    zeros_pass: bool = False
    """Whether zeros would be right."""


class Expect(ToJudge[Expected]):
    """Write the inputs of a call and work out its right answer."""

    call: Call
    values: tuple[Fill, ...]
    seed: int
    twice: bool
    """Whether it is worked out twice, and both have to agree."""
    parameters: dict[str, Value]
    """Keywords of the generator."""
    found: bool = False
    """Whether only the reference knows the outputs."""
    draws: int = 1
    """Sets of values that a generator makes."""
    draw: int = 0
    """Number of the set that has the seed."""
    device: Device = "cpu"
    """Where the right answer is worked out, if there is room: large ones take minutes on a CPU."""
    needed: float = 0.0
    """Bytes that the reference takes, by the manifest's `memory`."""


class Discard(ToJudge[Done]):
    """Forget the answer to a call."""

    key: str


class Finding(Plain):
    """How the worst of some outputs compares with the right answer."""

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


class Compare(ToJudge[Finding]):
    """Compare the output files of a call with the right answer."""

    call: Call
    outputs: tuple[str, ...]
    suspected: bool = False
    """Whether wrong outputs are compared with known faults, too."""
    before: str = ""
    """Key of a call with other values to which the same output was given; empty for none."""


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
    """Attributes that change no output."""
    unmoved: tuple[str, ...] = ()
    """Outputs that no input changes."""
    initial: tuple[str, ...] = ()
    """Parameters and buffers of a module that are all 1 or all 0, as constructors leave them."""


class Look(ToJudge[Looked]):
    """Name what the inputs drawn so far could not show."""

    calls: tuple[Expect, ...]
    """One workload under two seeds, on which the reference is asked what it reads; empty: it is not asked."""


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


class ToWorker(Request[R]):
    """A request that a worker answers."""


class Load(ToWorker[Done]):
    """Load a variant, once what it is timed with is sealed."""

    variant: Terms
    folder: str
    threads: int
    device: Device
    slow: float = 0.0
    """Share of its time by which every call is made longer on purpose."""
    mistake: Mistake | None = None


class Turn(Plain):
    """The first and the last call of a check that gave an output."""

    first: int
    last: int


class Computed(Plain):
    """What the calls of one check came to."""

    outputs: tuple[str, ...]
    """Files of the outputs that differ."""
    changed: tuple[str, ...]
    """Inputs that were written to."""
    writes: tuple[str, ...]
    """Writes outside of tensors, a sentence each."""
    broken: tuple[str, ...]
    """Functions of the worker that the variant has replaced."""
    digests: tuple[str, ...] = ()
    reads: str = ""
    """The tensors outside which something is read on which the output depends."""
    unwritten: bool = False
    """Whether the output depends on what stood in its memory before."""
    turns: tuple[Turn, ...] = ()
    """Which calls gave each output."""

    @property
    def flaky(self) -> bool:
        """Whether the same values gave different outputs."""
        return len(self.digests) > 1


class Compute(ToWorker[Computed]):
    """Compute one output, twice at least, and look at what surrounds it."""

    call: Call
    layout: Layout = "contiguous"
    hurried: bool = False
    once: bool = False
    """Whether one call is enough where it is slow."""
    mistake: Mistake | None = None
    """What this call alone does wrong."""


class Staged(Plain):
    """A call is staged."""

    peak_bytes: int | None
    """Memory that the first call took at its peak; None where the system does not tell."""


class StageCall(ToWorker[Staged]):
    """Take a call's place in the shared memory, and make it once."""

    call: Call
    size: int
    """Bytes of the shared memory."""
    inputs: tuple[int, ...]
    """Where each input's pool begins there, in bytes."""
    slots: tuple[int, ...]
    """Where the output of each call begins."""
    window: tuple[int, ...]
    turns: tuple[int, ...]
    """Bytes by which each input is rotated."""
    mistake: Mistake | None = None


class Obeyed(Plain):
    """What was noticed while orders were carried out."""

    broken: tuple[str, ...]
    writes: tuple[str, ...]


class Obey(ToWorker[Obeyed]):
    """Carry out the judge's orders about the staged call, or about `empty` ones, until one says to leave."""

    seen: int
    """The number of the last order before."""
    empty: str | None = None
    """How empty calls are made; empty for orders without a call."""


class Unstage(ToWorker[Done]):
    """Let go of the staged call."""


class Prepare(ToWorker[Done]):
    """Bring a call's inputs into memory and make it once, before it is counted, marked or traced."""

    call: Call


class Counts(Plain):
    """Hardware counters over some calls."""

    counters: dict[str, int | None]
    why: str
    """Why there are none."""
    calls: int


class CountCalls(ToWorker[Counts]):
    """Count hardware events over some calls of the prepared call."""


class Mark(ToWorker[Done]):
    """Make the prepared call once, between the marks that a profiler waits for."""


class Kernel(Plain):
    """One launch, as torch's profiler saw it."""

    kernel: str
    us: float | None
    registers: int | None


class Kernels(Plain):
    """The launches of one call, in order."""

    kernels: tuple[Kernel, ...]


class Trace(ToWorker[Kernels]):
    """Make the prepared call once under torch's own profiler."""


class Once(ToWorker[Done]):
    """Make one call without guard zones, for a sanitizer."""

    call: Call


class Launched(Plain):
    """What a call would launch."""

    launches: tuple[dict[str, Any], ...]
    """Each as the emulator tells it, and between them remarks on their choice."""
    declined: str
    """The error that the entry returned, in its words; empty where it returned none."""


class Launches(ToWorker[Launched]):
    """Say which kernels a call would launch, by an emulated library in a dry run."""

    variant: Terms
    told: str
    """The file to which the library writes."""
    call: Call
