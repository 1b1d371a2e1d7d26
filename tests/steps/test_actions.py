"""The audit of a session's own promises: never silent, and honest about its estimates."""

from typing import cast

from loop.base.processes import run_to_end
from loop.model.record import Finished
from loop.steps.actions import AuditOutput, Cadence, audit
from loop.steps.context import Context, Task
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
