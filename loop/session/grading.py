"""How well did a session go? Its time by a clock to be believed, its late steps, a letter by a short rule."""

from collections.abc import Iterable

from loop.model.plan import Plan, Reached
from loop.model.record import Finished, Status, latest_attempts
from loop.report import format as say
from loop.session.course import name_of

SLACK_S, SLACK = 60.0, 0.1
"""What may pass outside the steps: a minute, and a tenth of the steps' own time. loop itself takes far less."""


def own_seconds(wall_s: float, steps_s: float) -> float:
    """Seconds of a session outside its steps; none where its wall time contradicts the steps' own clock.

    That clock only goes forward. Wall time jumps where somebody sets the clock, or the machine sleeps.
    """
    outside = wall_s - steps_s
    return max(0.0, outside) if -1.0 <= outside <= SLACK_S + SLACK * steps_s else 0.0


RULE: tuple[tuple[str, str], ...] = (
    ("A", "every gate passed, the plan's objective is reached, session and steps kept their time"),
    ("B", "every gate passed; the session or a step took longer than planned"),
    ("C", "every gate passed; the objective is missed, or what it asks for is not known"),
    ("D", "a gate failed, or an output is incorrect or cannot be judged"),
    ("F", "the session was aborted, or judged nothing"),
    ("-", "the session is paused; it is graded when it has ended"),
)
"""Letter and what leads to it: the lowest letter that applies. A plan without an objective is graded by gates and
time."""


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
    missed = [f"the objective is missed: {part.words}" for part in (objective.missed if objective else ())]
    reasons, planned = list(missed), 60 * plan.budget.minutes
    if seconds > planned:
        reasons.append(f"the session took {say.seconds(seconds)} of {say.seconds(planned)}")
    late = [f"{name_of(r)} ({r.seconds:.1f} of {r.budget_s:g} s)" for r in steps if r.over_budget]
    if late:
        reasons.append(f"over budget: {', '.join(late)}")
    if reasons:
        return "C" if missed else "B", "Every gate passed, but " + "; ".join(reasons)
    reached = "reached its objective, and " if objective else ""
    return "A", f"The session {reached}passed every gate within its time"
