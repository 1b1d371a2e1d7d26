"""Calibration: whether predictions held, and how wide the next interval has to be."""

from loop.learning.prediction import in_words, judged
from loop.model.index import Environment, SessionRow
from loop.model.plan import Predicted
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
