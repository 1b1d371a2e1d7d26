"""Calibration: whether predictions held, and how wide the next interval has to be."""

import math
import random

import pytest

from loop.learning.calibration import calibration, in_words, times
from loop.learning.prediction import WIDEST, judged, widening
from loop.model.index import Environment, SessionRow
from loop.model.plan import Predicted
from loop.model.profile import GainOutcome, Promise, Promised
from tests.makers import NOON


def row(seconds: float, *, half: float = 0.2, widened: float = 1.0, complete: bool = True) -> SessionRow:
    """A session that was predicted to take 100 s, give or take a factor of exp(`half`)."""
    low, high = 100 * math.exp(-half), 100 * math.exp(half)
    known = Predicted(seconds=100, low_s=low, high_s=high, widened=widened, usd=1, low_usd=1, high_usd=1)
    return SessionRow(
        id="s", started=NOON, target="t", plan="p", device="cpu", status="passed", seconds=seconds,
        environment=Environment(processor="x"), predicted=known, complete=complete,
    )  # fmt: skip


def test_sessions_inside_are_counted() -> None:
    """With Jeffreys' interval; the error is the median one."""
    found = calibration(times([row(100), row(110), row(70), row(130)]))
    assert found is not None
    assert (4, 2) == (found.count, found.inside)
    assert found.low < 0.5 < found.high
    assert pytest.approx((math.log(1.1) + math.log(1.3)) / 2) == found.error


def test_only_whole_sessions_with_a_prediction_are_judged() -> None:
    """One that was interrupted says nothing of the time of its plan."""
    without = row(100).model_copy(update={"predicted": None})
    assert [] == judged([without, row(100, complete=False)])
    assert calibration(times([without])) is None
    assert "" == in_words([without])


def test_in_words() -> None:
    """The share with its count."""
    assert in_words([row(100), row(300)]).startswith(
        "Of the last 2 predicted sessions, 1 took a time inside the 80 % interval: 50 % ["
    )


def test_gains_that_advice_promised_are_counted() -> None:
    """In a sentence of their own, by the interval that the rule stated."""
    promise = Promise(advice="mixed", stated=(1.1, 1.2))
    came = [
        GainOutcome(promise=promise, variant="a", workload="w", actual=actual, basis="change")
        for actual in (1.15, 0.9, 1.0)
    ]
    rows = [row(100, complete=False).model_copy(update={"gains": (one,)}) for one in came]
    said = "Of 3 gains that advice promised, 1 lay inside the interval: 33 % [6, 76]."
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


def test_without_predictions_widths_stay() -> None:
    """The rule's own are taken at their word."""
    assert pytest.approx(1.0, abs=0.1) == widening([])


def test_predictions_that_fail_widen_the_next() -> None:
    """And those that hold narrow it."""
    assert widening([row(150)] * 20) > 1.5
    assert widening([row(101)] * 20) < 0.8
    assert WIDEST == widening([row(10000)] * 40)


def test_a_widened_interval_is_judged_by_the_rules_own_width() -> None:
    """Otherwise it would be widened again and again."""
    assert pytest.approx(widening([row(130)] * 20)) == widening([row(130, half=0.4, widened=2.0)] * 20)


def test_after_some_predictions_eight_in_ten_hold() -> None:
    """Errors twice as large as the rule thinks: the factor comes to about two."""
    chance = random.Random(1)
    sessions = [row(100 * math.exp(chance.gauss(0, 2 * 0.2 / 1.2816))) for _ in range(40)]
    assert 1.5 < widening(sessions) < 2.6
