"""Why did a session take longer than planned? Its steps that took more than they should, with their causes."""

from collections.abc import Sequence

from loop.gate.model import BuildOutput
from loop.model.bisect import BisectOutput
from loop.model.objective import Late
from loop.model.output import read_output
from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, latest_attempts
from loop.report import format as say
from loop.session.course import name_of

MOST = 3
"""Steps that are named: those that lost most time."""
LEAST_S = 1.0
"""Less than this is no loss."""


def late_steps(plan: ResolvedPlan, finished: Sequence[Finished]) -> tuple[Late, ...]:
    """The steps that took longest beyond what earlier runs of them took, or beyond their budget."""
    ran = [record for record in latest_attempts(finished) if record.status != "skipped"]
    late = [Late(step=name_of(r), seconds=r.seconds, expected_s=_expected(plan, r), why=_why(r)) for r in ran]
    late = [one for one in late if one.seconds - one.expected_s > LEAST_S]
    return tuple(sorted(late, key=lambda one: one.expected_s - one.seconds)[:MOST])


def _expected(plan: ResolvedPlan, record: Finished) -> float:
    known = plan.find(record.pattern).step_s.get(record.step)
    return record.budget_s if known is None else min(known, record.budget_s)


def _why(record: Finished) -> str:
    """The cause, by what the step's own output says."""
    if record.killed:
        return "it was ended at its limit"
    build = read_output(record, BuildOutput)
    compiled = [one for one in build.builds if not one.cached] if build else []
    if compiled:
        names = say.listed([one.variant for one in compiled])
        return f"{names} had to be compiled: {say.seconds(sum(one.seconds for one in compiled))}"
    search = read_output(record, BisectOutput)
    if search and search.answer:
        tried = say.count(len(search.answer.probes), "commit")
        return f"a search tried {tried} and compiled {search.answer.builds}"
    warnings = record.output.get("warnings") or ()
    return "; ".join(map(str, warnings)) or f"its record shows no cause: {record.message}"
