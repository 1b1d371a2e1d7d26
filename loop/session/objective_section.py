"""What the report says of the objective: reached or missed by how much, phase by phase, and why it took long."""

from collections.abc import Iterator
from dataclasses import dataclass

from loop.model.record import SessionRecord
from loop.report import format as say
from loop.report.format import bar
from loop.report.markdown import Table, columns, filled


@dataclass(frozen=True)
class ObjectiveView:
    """The objective of a session, as it is shown."""

    title: str
    lines: tuple[str, ...]
    late: tuple[str, ...]
    """The steps that lost most time; they stand under the last of the lines."""
    phases: Table | None


def objective(record: SessionRecord) -> ObjectiveView:
    """That of a session which has ended, or is paused."""
    late = (
        f"{one.step}: {say.seconds(one.seconds)} of {say.seconds(one.expected_s)}; {one.why}."
        for one in record.late
    )
    return ObjectiveView(record.head.plan.plan.title, tuple(_lines(record)), tuple(late), _phases(record))


def verdict(record: SessionRecord) -> str:
    """`objective missed: cpu.ratio is 1.31, 13 % off `cpu.ratio >= 1.5``; empty where a plan states none."""
    judged = record.objective
    if judged is None:
        return ""
    if not judged.missed:
        return f"objective reached: {judged.success}"
    return f"objective missed: {'; '.join(one.words for one in judged.missed)}"


def _lines(record: SessionRecord) -> Iterator[str]:
    plan = record.head.plan.plan
    said = verdict(record)
    if said:
        yield f"{said[0].upper()}{said[1:]}."
    if record.objective and record.objective.missed and plan.otherwise:
        yield f"What answers a miss: {plan.otherwise}."
    planned = 60 * plan.budget.minutes
    if record.late:
        yield f"It took {say.seconds(record.seconds)} of {say.seconds(planned)}. Most time was lost in:"


def _phases(record: SessionRecord) -> Table | None:
    rows = tuple(
        (
            one.name,
            say.seconds(60 * one.minutes),
            say.seconds(one.seconds),
            bar(one.seconds, 60 * one.minutes),
        )
        for one in record.phases
    )
    return filled(columns("Phase", ">Planned", ">Actual", "Of its plan"), rows)
