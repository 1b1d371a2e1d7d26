"""Did predictions hold? In sentences over all sessions, and as the report's table for one."""

import math
from collections.abc import Callable, Iterator, Sequence

from loop.base.stats import median
from loop.learning.prediction import judged
from loop.model.index import SessionRow
from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.profile.promised import held, outcomes
from loop.report import format as say
from loop.report.markdown import Table, columns, filled


def in_words(rows: Sequence[SessionRow]) -> str:
    """How predictions of time and of gain held, a sentence each; empty where none has an outcome.

    `rows`: oldest first. The outcomes of earlier advice in the last session are named one by one.
    """
    sentences = []
    if timed := judged(rows):
        inside = sum(known.low_s <= seconds <= known.high_s for known, seconds in timed)
        error = median([abs(math.log(seconds / known.seconds)) for known, seconds in timed])
        held_times = (
            f"Of {say.count(len(timed), 'predicted session')}, {inside} took a time inside the 80 % interval"
        )
        sentences.append(
            f"{held_times}; half of the predictions were off by less than {100 * math.expm1(error):.0f} %."
        )
    gains = outcomes(rows)
    if gains:
        inside = sum(outcome.side == "inside" for outcome in gains)
        promised = f"Of {say.count(len(gains), 'gain')} that advice promised"
        sentences.append(f"{promised}, {inside} lay inside the interval.")
    for outcome in gains:
        if outcome.session == rows[-1].id and outcome.basis == "later session":
            advice = f"Advice on {outcome.promise.advice} for {outcome.variant} on {outcome.workload}"
            sentences.append(f"{advice} promised {held(outcome)}.")
    return " ".join(sentences)


Row = tuple[str, str, str, str, str]


def predicted(record: SessionRecord, finished: Sequence[Finished]) -> Table | None:
    """Predicted beside actual; None for a session that stored no prediction, or did nothing."""
    known = record.head.predicted
    if known is None or not finished:
        return None
    rows = [
        _row("The session", (known.seconds, known.low_s, known.high_s), record.seconds, say.seconds),
        _row("Its cost", (known.usd, known.low_usd, known.high_usd), record.bill.usd, say.usd),
        *_runs(record, latest_attempts(finished)),
    ]
    return filled(columns("What", ">Predicted", ">80 % interval", ">Actual", "Held"), rows)


def _row(what: str, known: tuple[float, float, float], actual: float, words: Callable[[float], str]) -> Row:
    middle, low, high = known
    result = "below" if actual < low else "above" if actual > high else "yes"
    return what, words(middle), f"{words(low)} to {words(high)}", words(actual), result


def _runs(record: SessionRecord, steps: Sequence[Finished]) -> Iterator[Row]:
    """Each run of a pattern in which every step was done."""
    for run, name in dict.fromkeys((step.run, step.pattern) for step in steps):
        planned = record.head.plan.find(name)
        mine = [step for step in steps if (step.run, step.pattern) == (run, name)]
        whole = len(mine) == len(planned.pattern.steps)
        if planned.low_s is not None and planned.high_s is not None and whole:
            known = planned.seconds, planned.low_s, planned.high_s
            yield _row(name, known, sum(step.seconds for step in mine), say.seconds)
