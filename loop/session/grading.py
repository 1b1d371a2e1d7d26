"""A letter for a session, by a rule short enough to be printed whole."""

from collections.abc import Iterable, Iterator

from loop.model.grade import NEARLY
from loop.model.objective import Reached
from loop.model.plan import Plan
from loop.model.record import Finished, Status, latest_attempts
from loop.report import format as say

Ground = tuple[str, str]
"""A letter and what in this session leads to it."""


def grade(
    plan: Plan,
    status: Status,
    reason: str,
    finished: Iterable[Finished],
    objective: Reached | None,
    seconds: float,
) -> tuple[str, str]:
    """Letter and reason. `status`, `reason`: the session's own. `finished`: its records. `seconds`: its time."""
    steps = [record for record in latest_attempts(finished) if record.status != "skipped"]
    if status == "paused":
        return "-", f"paused: {reason}"
    if status in ("aborted", "skipped") or not steps:
        return "F", reason
    if status == "failed":
        return "D", reason
    grounds = [*_missed(objective), *_late(plan, steps, seconds)]
    if not grounds:
        reached = "reached its objective, and " if objective else ""
        return "A", f"The session {reached}passed every gate within its time"
    letter = max(ground[0] for ground in grounds)
    return letter, "Every gate passed, but " + "; ".join(why for _, why in grounds)


def _missed(objective: Reached | None) -> Iterator[Ground]:
    for one in objective.missed if objective else ():
        nearly = one.off is not None and one.off <= NEARLY
        yield "B" if nearly else "C", f"the objective is missed: {one.words}"


def _late(plan: Plan, steps: Iterable[Finished], seconds: float) -> Iterator[Ground]:
    planned = 60 * plan.budget.minutes
    if seconds > planned:
        yield "B", f"the session took {say.seconds(seconds)} of {say.seconds(planned)}"
    late = [record for record in steps if record.over_budget]
    if late:
        names = ", ".join(f"{r.pattern}/{r.step} ({r.seconds:.1f} of {r.budget_s:g} s)" for r in late)
        yield "B", f"over budget: {names}"
