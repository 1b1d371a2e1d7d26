"""What timing a side for a moment came to."""

from dataclasses import dataclass, field


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
    """Of a GPU: seconds of a sample by the judge's clock, and by the device's."""
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
