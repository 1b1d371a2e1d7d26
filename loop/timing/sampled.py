"""What the samples of a segment came to, and which of them say something."""

from dataclasses import dataclass, field

from loop.calls.arena import MOST_CALLS
from loop.model.device import Device
from loop.model.measurement import CLEAN

WARM_UP_S, WARM_UP_CALLS, WARM_UP_MOST_S = 1e-3, 5, 0.1
"""Calls are made for so long before a segment, until so many of them were not disturbed, or the time is over."""


@dataclass
class Sampled:
    """What a segment came to."""

    calls: int = 1
    """Calls in a sample."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of one call, sample by sample."""
    waited: list[float] = field(default_factory=list)
    """Seconds a call in which worker or judge waited for a core; empty where the system does not tell."""
    readied: list[tuple[float, int]] = field(default_factory=list)
    """Seconds that making calls ready took, and how many; on a host whose caches are not emptied."""
    handed: list[float] = field(default_factory=list)
    """Seconds a call that handing the results over took, where that was asked for."""
    clocks: list[tuple[float, float]] = field(default_factory=list)
    """Of a GPU: seconds of a sample by the judge's clock, less the launches, and by the device's."""
    own: bool = False
    """Whether the variant timed itself."""
    output: bytes | None = None
    """The output of the call whose answer is known."""
    changed: list[str] = field(default_factory=list)
    """Inputs that do not hold what the judge wrote."""
    broken: list[str] = field(default_factory=list)
    """What the variant replaced in its process, by name."""
    writes: list[str] = field(default_factory=list)
    """Writes outside of tensors, or too late, a sentence each."""
    stray: str = ""
    """How the worker was seen to leave its cores while it made calls."""


def disturbed(whole: float, waited: float | None) -> bool:
    """Whether a sample says more of the machine than of the call; both in seconds."""
    return waited is not None and waited > CLEAN * whole


def calls_known(sounds: int, spent: float, seconds: float, enough: int) -> bool:
    """Whether a warm-up has gone on for long enough to know how long a call takes, with so many sound samples."""
    if spent < seconds:
        return False
    return sounds >= enough or spent >= (WARM_UP_MOST_S if sounds else 5 * WARM_UP_MOST_S)


@dataclass(frozen=True)
class Setup:
    """What all timed calls of a workload share."""

    device: Device
    floor_s: float
    """Seconds that an order takes which does nothing."""
    most_calls: int = MOST_CALLS
    """Calls that a sample may come to: each needs memory."""
