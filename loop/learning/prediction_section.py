"""What the report says of the prediction made when the session began: the whole, each pattern, each step."""

from collections.abc import Callable, Iterator, Sequence

from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.report import format as say
from loop.report.markdown import Table, columns, filled

Row = tuple[str, str, str, str, str]


def predicted(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """Predicted beside actual; None for a session that stored no prediction, or did nothing."""
    heads = columns("What", ">Predicted", ">80 % interval", ">Actual", "Held")
    if record.head.predicted is None or not finished:
        return None
    return filled(heads, (*_whole(record), *_runs(record, latest_attempts(finished))))


def _whole(record: SessionRecord) -> Iterator[Row]:
    known = record.head.predicted
    if known is not None:
        time, cost = (known.seconds, known.low_s, known.high_s), (known.usd, known.low_usd, known.high_usd)
        yield _row("The session", time, record.seconds, say.seconds)
        yield _row("Its cost", cost, record.bill.usd, say.usd)


def _row(what: str, known: tuple[float, float, float], actual: float, words: Callable[[float], str]) -> Row:
    middle, low, high = known
    between = f"{words(low)} to {words(high)}"
    return what, words(middle), between, words(actual), _held(low, high, actual)


def _held(low: float, high: float, actual: float) -> str:
    if actual < low:
        return "below"
    return "above" if actual > high else "yes"


def _runs(record: SessionRecord, steps: Sequence[Finished]) -> Iterator[Row]:
    """Each run that every step of the pattern was done in, then those of its steps that were predicted."""
    for run, name in dict.fromkeys((step.run, step.pattern) for step in steps):
        planned = record.head.plan.find(name)
        mine = [step for step in steps if (step.run, step.pattern) == (run, name)]
        whole = len(mine) == len(planned.pattern.steps)
        if planned.low_s is not None and planned.high_s is not None and whole:
            known = planned.seconds, planned.low_s, planned.high_s
            yield _row(name, known, sum(step.seconds for step in mine), say.seconds)
        for step in mine:
            if step.step in planned.step_s and step.status in ("passed", "failed"):
                expected = say.seconds(planned.step_s[step.step])
                yield f"{name}/{step.step}", expected, "-", say.seconds(step.seconds), "-"
