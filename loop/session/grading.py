"""How well did a session go? Its time by a clock to be believed, its late steps, a letter by a short rule."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loop.gate.model import BuildOutput
from loop.model.bisect import BisectOutput
from loop.model.output import read_output
from loop.model.plan import Late, Plan, Reached, ResolvedPlan
from loop.model.record import Finished, Status, latest_attempts
from loop.report import format as say
from loop.session.course import name_of

MOST = 3
"""Steps that are named: those that lost most time."""
LEAST_S = 1.0
"""Less than this is no loss."""


def late_steps(plan: ResolvedPlan, finished: Sequence[Finished]) -> tuple[Late, ...]:
    """The steps that took longest beyond what earlier runs of them took, or beyond their budget."""
    late = []
    for record in latest_attempts(finished):
        known = plan.find(record.pattern).step_s.get(record.step, record.budget_s)
        expected_s = min(known, record.budget_s)
        if record.status != "skipped" and record.seconds - expected_s > LEAST_S:
            late.append(
                Late(step=name_of(record), seconds=record.seconds, expected_s=expected_s, why=_why(record))
            )
    return tuple(sorted(late, key=lambda step: step.expected_s - step.seconds)[:MOST])


def _why(record: Finished) -> str:
    """The cause, by what the step's own output says."""
    if record.killed:
        return "it was ended at its limit"
    build = read_output(record, BuildOutput)
    compiled = [library for library in build.builds if library.compiled and not library.cached] if build else []
    if compiled:
        names = say.listed([library.variant for library in compiled])
        return f"{names} had to be compiled: {say.seconds(sum(library.seconds for library in compiled))}"
    search = read_output(record, BisectOutput)
    if search and search.answer:
        tried = say.count(len(search.answer.probes), "commit")
        return f"a search tried {tried} and compiled {search.answer.builds}"
    warnings = record.output.get("warnings") or ()
    return "; ".join(map(str, warnings)) or f"its record shows no cause: {record.message}"


SLACK_S, SLACK = 60.0, 0.1
"""What may pass outside the steps: a minute, and a tenth of the steps' own time. loop itself takes far less."""


@dataclass(frozen=True)
class Elapsed:
    """The time of a session."""

    seconds: float
    """From its first step to its last, interruptions left out."""
    own_seconds: float
    """Part of it outside any step."""
    note: str = ""
    """That the clock cannot be believed, and what was taken instead; empty where it can."""


def believed(wall_s: float, steps_s: Sequence[float]) -> Elapsed:
    """Wall time, unless it contradicts the seconds of the steps, which come from a clock that only goes forward.

    Steps follow one another, so that wall time is never below their sum; and loop does little between them. A
    clock that was set, or a machine that slept, breaks one or the other.
    """
    steps = sum(steps_s)
    outside = wall_s - steps
    if outside < -1.0:
        cause = f"the clock was set back: {wall_s:.0f} s passed by it"
    elif outside > SLACK_S + SLACK * steps:
        cause = f"the clock was set forward, or the machine slept: {wall_s:.0f} s passed by it"
    else:
        return Elapsed(wall_s, max(0.0, outside))
    return Elapsed(steps, 0.0, f"{cause}, {steps:.0f} s in the steps by their own clock, which is what is charged")


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
