"""What a worker is asked, and what it replies."""

from dataclasses import dataclass
from typing import Any, Literal

from loop.calls.call import Call, Terms
from loop.model.dtypes import Device
from loop.workers.wire import Count, Done, R, Request

Mistake = dict[str, Any]
"""The mistake that a control makes on purpose, in the words of `loop.proving.controls`."""


class ToWorker(Request[R]):
    """A request that a worker answers."""


@dataclass(frozen=True)
class Load(ToWorker[Done]):
    """Load a variant, once what it is timed with is sealed."""

    variant: Terms
    folder: str
    threads: int
    device: Device
    slow: float = 0.0
    """Share of its time by which every call is made longer on purpose."""
    mistake: Mistake | None = None


@dataclass(frozen=True)
class Computed:
    """What the calls of one check came to."""

    outputs: tuple[str, ...]
    """Files of the outputs that differ."""
    changed: tuple[str, ...]
    """Inputs that were written to."""
    writes: tuple[str, ...]
    """Writes outside of tensors, a sentence each."""
    broken: tuple[str, ...]
    """What it is judged with and has replaced."""
    digests: tuple[str, ...] = ()
    reads: str = ""
    """The tensors outside which something is read on which the output depends."""
    unwritten: bool = False
    """Whether the output depends on what stood in its memory before."""

    @property
    def flaky(self) -> bool:
        """Whether the same values gave different outputs."""
        return len(self.digests) > 1


@dataclass(frozen=True)
class Compute(ToWorker[Computed]):
    """Compute one output, twice at least, and look at what surrounds it."""

    call: Call
    layout: Literal["contiguous", "strided", "misaligned"] = "contiguous"
    hurried: bool = False
    mistake: Mistake | None = None
    """What this call alone does wrong."""


@dataclass(frozen=True)
class Staged:
    """A call is staged."""

    peak_bytes: Count | None
    """Memory that the first call took at its peak; None where the system does not tell."""


@dataclass(frozen=True)
class Stage(ToWorker[Staged]):
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


@dataclass(frozen=True)
class Obeyed:
    """What was noticed while orders were carried out."""

    broken: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Obey(ToWorker[Obeyed]):
    """Carry out the judge's orders about the staged call, or about `empty` ones, until one says to leave."""

    seen: int
    """The number of the last order before."""
    empty: str | None = None
    """How empty calls are made; empty for orders without a call."""


@dataclass(frozen=True)
class Unstage(ToWorker[Done]):
    """Let go of the staged call."""


@dataclass(frozen=True)
class Prepare(ToWorker[Done]):
    """Bring a call's inputs into memory and make it once, for those who look on."""

    call: Call


@dataclass(frozen=True)
class Counts:
    """Hardware counters over some calls."""

    counters: dict[str, Count | None]
    why: str
    """Why there are none."""
    calls: Count


@dataclass(frozen=True)
class CountCalls(ToWorker[Counts]):
    """Count some calls of the prepared call."""


@dataclass(frozen=True)
class Mark(ToWorker[Done]):
    """Make the prepared call once, between the marks that a profiler waits for."""


@dataclass(frozen=True)
class Kernel:
    """One launch, as torch's profiler saw it."""

    kernel: str
    us: float | None
    registers: Count | None


@dataclass(frozen=True)
class Kernels:
    """The launches of one call, in order."""

    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Trace(ToWorker[Kernels]):
    """Make the prepared call once under torch's own profiler."""


@dataclass(frozen=True)
class Once(ToWorker[Done]):
    """Make one call that nothing stands beside, for a sanitizer."""

    call: Call


@dataclass(frozen=True)
class Launched:
    """What a call would launch."""

    launches: tuple[dict[str, Any], ...]
    """Each as the emulator tells it."""
    declined: str
    """The error that the entry returned, in its words; empty where it returned none."""


@dataclass(frozen=True)
class Launches(ToWorker[Launched]):
    """Say which kernels a call would launch, by an emulated library in a dry run."""

    variant: Terms
    told: str
    """The file in which the library tells."""
    call: Call
