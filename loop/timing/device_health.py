"""Which blocks of a comparison the GPU itself spoilt: one side was held back, the other was not."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

CLOCKS_APART = 0.01
"""Median SM clocks of the two sides may differ by this share of the higher one."""

SideName = Literal["reference", "candidate"]


class State(Protocol):
    """What counts of a GPU at one moment."""

    @property
    def sm_clock_mhz(self) -> float | None:
        """Clock of the multiprocessors; None where nobody tells."""

    @property
    def throttle(self) -> tuple[str, ...]:
        """What holds the clocks back."""


Span = tuple[State, State]
"""The GPU before and after one segment."""


@dataclass(frozen=True)
class Drop:
    """Why a block does not count."""

    side: SideName
    """The side that was held back."""
    reason: str
    """One line."""


@dataclass(frozen=True)
class Persistent:
    """One side was held back so often that this is a result."""

    side: SideName
    """The side that was held back."""
    dropped: int
    """Blocks dropped because of it."""
    blocks: int
    """Blocks measured, the dropped ones included."""
    reason: str
    """The reason that was given most often."""

    @property
    def message(self) -> str:
        """One line for a report."""
        return f"the {self.side} was held back in {self.dropped} of {self.blocks} blocks: {self.reason}"


def drop(reference: Sequence[Span], candidate: Sequence[Span]) -> Drop | None:
    """Why the block with these segments of either side does not count; None when it does."""
    return _throttled(reference, candidate) or _clocks_apart(reference, candidate)


def _throttled(reference: Sequence[Span], candidate: Sequence[Span]) -> Drop | None:
    sides: dict[SideName, list[str]] = {"reference": _reasons(reference), "candidate": _reasons(candidate)}
    held = [side for side, reasons in sides.items() if reasons]
    if len(held) != 1:
        return None
    reasons, other = ", ".join(sides[held[0]]), _other(held[0])
    return Drop(held[0], f"the {held[0]} was throttled ({reasons}), the {other} was not")


def _reasons(spans: Sequence[Span]) -> list[str]:
    """Everything that held the clocks back, each named once."""
    return list(dict.fromkeys(reason for span in spans for state in span for reason in state.throttle))


def _clocks_apart(reference: Sequence[Span], candidate: Sequence[Span]) -> Drop | None:
    reference_mhz, candidate_mhz = _median_mhz(reference), _median_mhz(candidate)
    if reference_mhz is None or candidate_mhz is None:
        return None
    apart = abs(reference_mhz - candidate_mhz) / max(reference_mhz, candidate_mhz, 1.0)
    if apart <= CLOCKS_APART:
        return None
    slower: SideName = "reference" if reference_mhz < candidate_mhz else "candidate"
    clocks = f"{reference_mhz:.0f} MHz for the reference, {candidate_mhz:.0f} MHz for the candidate"
    return Drop(slower, f"median SM clocks differ by {apart:.1%}: {clocks}")


def _median_mhz(spans: Sequence[Span]) -> float | None:
    clocks = [state.sm_clock_mhz for span in spans for state in span if state.sm_clock_mhz is not None]
    return float(statistics.median(clocks)) if clocks else None


def _other(side: SideName) -> SideName:
    return "candidate" if side == "reference" else "reference"


def persistent(drops: Sequence[Drop], blocks: int) -> Persistent | None:
    """The result that one side was held back in more than half of `blocks`; None when that is not so."""
    for side, dropped in Counter(drop.side for drop in drops).items():
        if 2 * dropped > blocks:
            reasons = Counter(drop.reason for drop in drops if drop.side == side)
            return Persistent(side, dropped, blocks, reasons.most_common(1)[0][0])
    return None
