"""What workers are asked, and what they reply. No pydantic: a worker starts in tens of milliseconds."""

from typing import Any

from loop.calls.call import Call, Plain, Terms
from loop.model.dtypes import Device, Layout
from loop.workers.wire import Done, R, Request

Mistake = dict[str, Any]
"""The mistake that a control makes on purpose, in the words of `loop.proving.negative_controls`."""


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
