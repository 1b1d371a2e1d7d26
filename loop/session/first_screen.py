"""The first screen of a report: each variant in a row, and in a line each what it was for, cost and left out."""

from collections import Counter
from collections.abc import Iterator, Sequence

from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionRecord
from loop.model.verdict import Against, SpeedVerdict
from loop.money.section import money_line
from loop.report import format as say
from loop.report.findings import mean_of, speed_verdicts
from loop.report.markdown import Table, columns, filled
from loop.report.plain import shortened
from loop.session.objective_section import verdict

NOTHING = "-"
NAMED, LONGEST = 2, 80
"""Things not exercised that are named, and letters of each; the rest is counted."""


def variants(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """A row a variant: wrong ones first, examples and baselines last; None where nothing was judged."""
    head = record.head
    compared = {one.variant for one in record.verdicts if one.against == "known_good"}
    names = sorted(
        (*head.variants, *head.emulated),
        key=lambda name: (name not in _wrong(record), name in head.roles, name not in compared),
    )
    rows = [
        (_named(record, name), _right(record, finished, name), _speed(record, name), _known_good(record, name))
        for name in names
    ]
    heads = columns("Variant", "Right", f"Against {head.baseline}", "Against its known good")
    return filled(heads, tuple(row for row in rows if row[1:] != (NOTHING,) * 3))


def _named(record: SessionRecord, name: str) -> str:
    """`fa1`, or `fa1 (example)`."""
    role = record.head.roles.get(name)
    return f"{name} ({role})" if role else name


def _wrong(record: SessionRecord) -> set[str]:
    return {one.variant for one in record.verdicts if not isinstance(one, SpeedVerdict)}


def _right(record: SessionRecord, finished: Sequence[Finished], name: str) -> str:
    """`12 of 12 checks, emulated`, by the last verification."""
    checked = {one.variant: one.checks for output in outputs_of(finished, VerifyOutput) for one in output.variants}
    checks = checked.get(name)
    if not checks:
        return NOTHING
    emulated = ", emulated" if name in record.head.emulated else ""
    declined = sum(one.passed and one.status != "right" for one in checks)
    more = f", {declined} not supported" if declined else ""
    return f"{sum(one.status == 'right' for one in checks)} of {len(checks)} checks{more}{emulated}"


def _speed(record: SessionRecord, name: str) -> str:
    """`1.40x, faster on 4 of 6, slower on 2`; of a wrong variant nothing."""
    mine = [one for one in speed_verdicts(record.verdicts) if one.variant == name]
    mean = mean_of(mine).removeprefix("geometric mean ")
    return ", ".join(filter(None, [mean, _words([one.verdict for one in mine])])) or NOTHING


def _known_good(record: SessionRecord, name: str) -> str:
    against: Against = "known_good"
    return (
        _words([one.verdict for one in record.verdicts if (one.variant, one.against) == (name, against)])
        or NOTHING
    )


def _words(verdicts: Sequence[str]) -> str:
    """`faster on 4 of 6, slower on 2`; empty for none."""
    counted = Counter(verdicts).most_common()
    first = f" of {len(verdicts)}"
    return ", ".join(f"{word} on {number}{'' if place else first}" for place, (word, number) in enumerate(counted))


def lines(record: SessionRecord, not_exercised: Sequence[str]) -> Iterator[str]:
    """Objective, grade, time, cost, and what was not exercised, a line each."""
    said = verdict(record)
    if said:
        yield f"{said[0].upper()}{said[1:]}."
    yield f"Grade {record.grade}: {record.grade_reason.rstrip('.')}."
    yield f"Time: {say.seconds(record.seconds)} of {_planned(record)} planned."
    yield money_line(record.bill, record.seconds)
    if not_exercised:
        more = len(not_exercised) - NAMED
        named = "; ".join(shortened(one.replace("`", ""), LONGEST) for one in not_exercised[:NAMED])
        yield f"Not exercised: {named}{f'; {more} more' if more > 0 else ''}."


def _planned(record: SessionRecord) -> str:
    return say.seconds(60 * record.head.plan.plan.budget.minutes)
