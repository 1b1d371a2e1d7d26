"""What workers are asked, and what they reply. No pydantic: a worker starts in tens of milliseconds."""

from typing import Any, Literal

from loop.calls.call import Call, Plain, Terms
from loop.model.dtypes import Device, Layout
from loop.workers.wire import Done, R, Request

Mistake = dict[str, Any]
"""The mistake that a control makes on purpose, in the words of `loop.proving.negative_controls`."""


How = Literal["count", "mark", "trace", "once"]
"""How a call is observed."""


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


class Kernel(Plain):
    """One launch, as torch's profiler saw it."""

    kernel: str
    us: float | None
    registers: int | None


class Observed(Plain):
    """What was seen of some calls: hardware counters, or launches in their order."""

    counters: dict[str, int | None]
    why: str
    """Why there are no counters."""
    calls: int
    kernels: tuple[Kernel, ...] = ()


class Observe(ToWorker[Observed]):
    """Bring a call into memory and make it under a tool.

    `count`: hardware events over some calls. `mark`: one call between the marks that a profiler waits for.
    `trace`: one under torch's own profiler. Before these it is made once. `once`: one call without guard zones.
    """

    call: Call
    how: How


class Launched(Plain):
    """What a call would launch."""

    launches: tuple[dict[str, Any], ...]
    """Each as the emulator tells it, and between them remarks on their choice."""
    declined: str
    """The error that the entry returned, in its words; empty where it returned none."""


class Launches(ToWorker[Launched]):
    """Say which kernels a call would launch, by an emulated library in a dry run: load nothing else there."""

    variant: Terms
    told: str
    """The file to which the library writes."""
    call: Call
