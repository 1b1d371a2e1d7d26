"""The audit of a session's own promises: never silent, and honest about its estimates."""

from typing import cast

from loop.base.processes import finish
from loop.model.record import Finished
from loop.steps.actions import AuditOutput, Cadence, audit
from loop.steps.context import Context, Task
from loop.workers.bench import Bench
from tests.makers import make_finished


def audited(*records: Finished) -> AuditOutput:
    """What an audit says of these steps."""
    context = Context(cast(Bench, None), cast(Task, None), finished=records)
    output: AuditOutput = finish(audit(context, Cadence())).output
    return output


def test_the_longest_silence_of_any_step_counts() -> None:
    """Not the sum, not the last."""
    output = audited(
        *(make_finished(step, longest_silence_s=s) for step, s in (("a", 3.0), ("b", 12.0), ("c", 1.0)))
    )
    assert (12.0, True) == (output.longest_silence_s, output.ok)
    assert not audited(make_finished("a", longest_silence_s=61.0)).ok


def test_steps_over_their_budget_are_named() -> None:
    """Exactly on budget is within it."""
    took = (("a", 9.9), ("b", 10.0), ("c", 10.1))
    output = audited(*(make_finished(step, seconds=seconds, budget_s=10.0) for step, seconds in took))
    assert ("baseline-first/c",) == output.over_budget


def test_steps_that_did_not_run_are_not_audited() -> None:
    """Skipped, aborted and paused steps made no promise."""
    statuses = ("skipped", "aborted", "paused", "failed", "passed")
    output = audited(
        *(make_finished(s, status=s, seconds=99.0, budget_s=1.0, longest_silence_s=99.0) for s in statuses)
    )
    assert ["baseline-first/failed", "baseline-first/passed"] == [one.step for one in output.steps]
    assert ("baseline-first/failed", "baseline-first/passed") == output.over_budget
