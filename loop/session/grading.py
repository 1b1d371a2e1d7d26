"""A letter for a session, by a rule short enough to be printed whole."""

from collections.abc import Iterable, Iterator, Sequence

from loop.model.record import Finished, Status, latest_attempts
from loop.model.verdict import Verdict

Ground = tuple[str, str]
"""A letter and what in this session leads to it."""


def grade(
    status: Status, reason: str, finished: Iterable[Finished], verdicts: Sequence[Verdict]
) -> tuple[str, str]:
    """Letter and reason. `status` and `reason` are the session's own; `finished` its records."""
    steps = [record for record in latest_attempts(finished) if record.status != "skipped"]
    if status == "paused":
        return "-", f"paused: {reason}"
    if status in ("aborted", "skipped") or not steps:
        return "F", reason
    if status == "failed":
        return "D", reason
    grounds = [*_speed_grounds(steps, verdicts), *_budget_grounds(steps)]
    if not grounds:
        return "A", _best(steps, verdicts)
    letter = max(ground[0] for ground in grounds)
    return letter, "Every gate passed, but " + "; ".join(why for _, why in grounds)


def _best(steps: Sequence[Finished], verdicts: Sequence[Verdict]) -> str:
    timed = len({one.workload for one in verdicts})
    speed = f"; each of {timed} timed workloads has a variant that is faster or same" if timed else ""
    return f"Every step passed within its budget{speed}"


def _speed_grounds(steps: Sequence[Finished], verdicts: Sequence[Verdict]) -> Iterator[Ground]:
    judged = [one for one in verdicts if one.against == "baseline"]
    timed = {one.workload for one in judged}
    served = {one.workload for one in judged if one.verdict in ("faster", "same")}
    if timed - served:
        short = f"no variant is faster or same on {len(timed - served)} of {len(timed)} timed workloads"
        yield ("C" if 2 * len(timed - served) > len(timed) else "B", short)
    if not judged and any(record.action == "kernel.measure" for record in steps):
        yield "C", "no workload was judged against the baseline"


def _budget_grounds(steps: Iterable[Finished]) -> Iterator[Ground]:
    late = [record for record in steps if record.over_budget]
    if late:
        names = ", ".join(f"{r.pattern}/{r.step} ({r.seconds:.1f} of {r.budget_s:g} s)" for r in late)
        yield "B", f"over budget: {names}"
