"""Calibration: whether predictions held, and how wide the next interval has to be."""

from loop.learning.prediction import in_words, judged
from loop.model.index import Environment, SessionRow
from loop.model.plan import Predicted
from loop.model.profile import GainOutcome, Promise, Promised
from tests.makers import NOON


def row(seconds: float, *, complete: bool = True) -> SessionRow:
    """A session that was predicted to take 100 s, give or take a factor of 1.2."""
    known = Predicted(seconds=100, low_s=80, high_s=120, usd=1, low_usd=1, high_usd=1)
    return SessionRow(
        id="s", started=NOON, target="t", plan="p", device="cpu", status="passed", seconds=seconds,
        environment=Environment(processor="x"), predicted=known, complete=complete,
    )  # fmt: skip


def test_only_whole_sessions_with_a_prediction_are_judged() -> None:
    """One that was interrupted says nothing of the time of its plan."""
    without = row(100).model_copy(update={"predicted": None})
    assert [] == judged([without, row(100, complete=False)])
    assert "" == in_words([without])


def test_in_words() -> None:
    """The share with its count."""
    assert in_words([row(100), row(300)]).startswith(
        "Of 2 predicted sessions, 1 took a time inside the 80 % interval; half"
    )


def test_gains_that_advice_promised_are_counted() -> None:
    """In a sentence of their own, by the interval that the rule stated."""
    promise = Promise(advice="mixed", stated=(1.1, 1.2))
    came = [
        GainOutcome(promise=promise, variant="a", workload="w", actual=actual, basis="change")
        for actual in (1.15, 0.9, 1.0)
    ]
    rows = [row(100, complete=False).model_copy(update={"gains": (one,)}) for one in came]
    said = "Of 3 gains that advice promised, 1 lay inside the interval."
    assert said == in_words(rows)


def test_what_a_session_made_of_earlier_advice_is_said() -> None:
    """Of the last session alone."""
    promise = Promise(advice="mixed", stated=(1.1, 1.2))
    made = Promised(promise=promise, variant="v", workload="w", build="a", ratio=0.5)
    before = row(100, complete=False).model_copy(update={"id": "s1", "builds": {"v": "a"}, "promises": (made,)})
    now = before.model_copy(update={"id": "s2", "builds": {"v": "b"}, "speeds": {"v": {"w": 0.6}}, "promises": ()})
    said = "Advice on mixed for v on w promised 1.10x to 1.20x: 1.20x, inside."
    assert in_words([before, now]).endswith(said)
    assert said not in in_words([before, now, now.model_copy(update={"id": "s3"})])
