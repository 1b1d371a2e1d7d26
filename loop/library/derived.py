"""What follows from the rows of recorded sessions: how their steps kept to their targets."""

from collections.abc import Iterable
from typing import Any

from loop.model.base import Model


class StepSums(Model):
    """Steps that state both a target and what they took."""

    steps: int
    """How many."""
    target_s: float
    """Seconds that they were given."""
    actual_s: float
    """Seconds that they took."""
    within: int
    """Those that took no longer than their target."""
    failed: int
    """Those that the report says failed."""

    @property
    def text(self) -> str:
        """In a sentence."""
        took, given = self.actual_s / 60, self.target_s / 60
        succeeded = self.steps - self.failed
        return (
            f"{self.steps} steps took {took:.1f} min of {given:.1f} planned ({100 * took / given:.0f} %); "
            f"{self.within} kept to their target, {succeeded} succeeded ({100 * succeeded / self.steps:.0f} %)"
        )


def step_sums(rows: Iterable[dict[str, Any]]) -> StepSums | None:
    """Sums over steps; None where none states both times."""
    timed = [row for row in rows if _seconds(row, "target_s") > 0 and _seconds(row, "actual_s") > 0]
    if not timed:
        return None
    return StepSums(
        steps=len(timed),
        target_s=sum(_seconds(row, "target_s") for row in timed),
        actual_s=sum(_seconds(row, "actual_s") for row in timed),
        within=sum(_seconds(row, "actual_s") <= _seconds(row, "target_s") for row in timed),
        failed=sum(row.get("status") == "failed" for row in timed),
    )


def _seconds(row: dict[str, Any], name: str) -> float:
    """0 where a row does not state it."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
