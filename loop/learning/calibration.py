"""Did predictions hold? In sentences over all sessions, and as the report's table for one."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loop.base.stats import beta_quantile, median
from loop.learning.prediction import judged
from loop.model.index import SessionRow
from loop.model.profile import GainOutcome
from loop.model.record import Finished, SessionRecord, latest_attempts
from loop.profile.promised import held, outcomes
from loop.report import format as say
from loop.report.markdown import Table, columns, filled


class PredictionOutcome(NamedTuple):
    """A prediction and what came of it, in seconds or as a ratio of speeds."""

    low: float
    expected: float
    high: float
    actual: float

    @property
    def inside(self) -> bool:
        """Whether the prediction held."""
        return self.low <= self.actual <= self.high


@dataclass(frozen=True)
class Calibration:
    """How earlier predictions held."""

    count: int
    """Predictions with an outcome."""
    inside: int
    """Those whose outcome was inside the interval."""
    low: float
    """90 % interval of the share that is inside: Jeffreys."""
    high: float
    error: float
    """Median of |log(actual / predicted)|: 0.1 is 10 %."""

    @property
    def text(self) -> str:
        """`33 % [6, 75]`: the share with its 90 % interval."""
        return f"{100 * self.inside / self.count:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


def times(rows: Sequence[SessionRow]) -> list[PredictionOutcome]:
    """The times of sessions beside their predictions."""
    return [PredictionOutcome(p.low_s, p.seconds, p.high_s, seconds) for p, seconds in judged(rows)]


def gains(came: Sequence[GainOutcome]) -> list[PredictionOutcome]:
    """Gains of advice beside the intervals that its rules state."""
    return [
        PredictionOutcome(low, math.sqrt(low * high), high, gain.actual)
        for gain in came
        for low, high in [gain.promise.stated]
    ]


def calibration(came: Sequence[PredictionOutcome]) -> Calibration | None:
    """How predictions held; None where there were none."""
    if not came:
        return None
    inside = sum(outcome.inside for outcome in came)
    a, b = inside + 0.5, len(came) - inside + 0.5
    errors = [abs(math.log(outcome.actual / outcome.expected)) for outcome in came]
    return Calibration(len(came), inside, beta_quantile(0.05, a, b), beta_quantile(0.95, a, b), median(errors))


def in_words(rows: Sequence[SessionRow]) -> str:
    """How predictions of time and of gain held, a sentence each; empty where none has an outcome.

    `rows`: oldest first. The outcomes of earlier advice in the last session are named one by one.
    """
    sentences = []
    if known := calibration(times(rows)):
        count = (
            f"the last {known.count} predicted sessions" if known.count > 1 else "the one predicted session so far"
        )
        sentences.append(
            f"Of {count}, {known.inside} took a time inside the 80 % interval: {known.text}; half of the "
            f"predictions were off by less than {100 * math.expm1(known.error):.0f} %."
        )
    came = outcomes(rows)
    if known := calibration(gains(came)):
        inside = f"{known.inside} lay inside the interval: {known.text}"
        sentences.append(f"Of {known.count} gains that advice promised, {inside}.")
    for outcome in came:
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
    """Each run of a pattern in which every step was done, then those of its steps that were predicted."""
    for run, name in dict.fromkeys((step.run, step.pattern) for step in steps):
        planned = record.head.plan.find(name)
        mine = [step for step in steps if (step.run, step.pattern) == (run, name)]
        whole = len(mine) == len(planned.pattern.steps)
        if planned.low_s is not None and planned.high_s is not None and whole:
            known = planned.seconds, planned.low_s, planned.high_s
            yield _row(name, known, sum(step.seconds for step in mine), say.seconds)
        for step in mine:
            if step.step in planned.step_s and step.status in ("passed", "failed"):
                seconds = say.seconds(planned.step_s[step.step])
                yield f"{name}/{step.step}", seconds, "-", say.seconds(step.seconds), "-"
