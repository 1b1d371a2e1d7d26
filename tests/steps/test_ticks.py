"""Signs of life: kept beside the journal where that is possible, never in the way."""

from pathlib import Path

from loop.model.record import StepTick
from loop.steps.ticks import TICKS, TickFile, read_ticks


def tick(seconds: float, note: str = "at work", **fields: object) -> StepTick:
    """A sign of life of one step."""
    base = {"run": 1, "pattern": "p", "step": "s", "seconds": seconds, "note": note}
    return StepTick.model_validate({**base, **fields})


def test_only_what_says_something_new_is_kept(tmp_path: Path) -> None:
    """The same words, or words at the heels of others, are left out; another step and a heartbeat are not."""
    written = TickFile(tmp_path / TICKS)
    for one in (
        tick(0.0, "a"),
        tick(1.0, "a"),
        tick(1.001, "b"),
        tick(1.002, "c"),
        tick(2.0, "b"),
        tick(2.002, "b", heartbeat=True),
        tick(0.0, "b", step="other"),
        tick(0.0, "b", step="other", attempt=2),
    ):
        written.add(one)
    kept = [(one.step, one.attempt, one.note) for one in read_ticks(tmp_path / TICKS)]
    assert [("s", 1, "a"), ("s", 1, "b"), ("s", 1, "b"), ("other", 1, "b"), ("other", 2, "b")] == kept
