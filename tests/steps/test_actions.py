"""The audit of a session's own promises, and signs of life beside the journal."""

from pathlib import Path
from typing import cast

from loop.base.processes import run_to_end
from loop.model.record import Finished, StepTick
from loop.steps.actions import AuditOutput, Cadence, audit
from loop.steps.context import Context, Task
from loop.steps.ticks import TICKS, TickFile, read_ticks
from loop.workers.bench import Bench
from tests.makers import make_finished


def audited(*records: Finished) -> AuditOutput:
    """What an audit says of these steps."""
    context = Context(cast(Bench, None), cast(Task, None), finished=records)
    output: AuditOutput = run_to_end(audit(context, Cadence())).output
    return output


def test_the_longest_silence_of_any_step_counts() -> None:
    """Not the sum, not the last."""
    output = audited(
        *(make_finished(step, longest_silence_s=s) for step, s in (("a", 3.0), ("b", 12.0), ("c", 1.0)))
    )
    assert (12.0, True) == (output.longest_silence_s, output.ok)
    assert not audited(make_finished("a", longest_silence_s=61.0)).ok


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
