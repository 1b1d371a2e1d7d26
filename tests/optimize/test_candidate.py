"""A judged change: whether it is kept."""

from collections.abc import Sequence

import pytest

from loop.model.measurement import NoSpeedVerdict, SpeedVerdict, Verdict
from loop.optimize.comparisons import decide_on_change


def speed(word: str, ratio: float, workload: str = "w", against: str = "known_good") -> SpeedVerdict:
    """A verdict against the incumbent."""
    return SpeedVerdict(
        variant="v",
        workload=workload,
        against=against,
        reason="why",
        verdict=word,
        ratio=ratio,
        interval=(ratio, ratio),
    )


def test_correctness_comes_before_speed_and_a_gain_on_one_workload_is_enough() -> None:
    """A failed step or a verdict without speed decides; else the mean counts all workloads."""
    speeds = [speed("faster", 1.1), speed("same", 1.0), speed("inconclusive", 0.99)]
    reason = "1.029x the incumbent's speed, faster on 1 of 3 workloads"
    assert ("kept", reason, pytest.approx((1.1 * 0.99) ** (1 / 3))) == decide_on_change(None, speeds, 0.01)
    fast = speed("faster", 5.0)
    assert "v is incorrect" == decide_on_change("v is incorrect", [fast], 0)[1]
    doubt = NoSpeedVerdict(variant="v", workload="w", against="self", reason="it remembers", verdict="invalid")
    assert ("reverted", "v is invalid: it remembers") == decide_on_change(None, [fast, doubt], 0)[:2]


@pytest.mark.parametrize(
    ("verdicts", "reason"),
    [
        ([speed("faster", 2.0), speed("slower", 0.9, "bad")], "slower on 1 of 2 workloads: 0.900x on bad"),
        ([speed("same", 1.0), speed("inconclusive", 1.2)], "not shown to be faster (why): 1.095x"),
        ([speed("faster", 1.03), speed("same", 0.98)], "1.005x the incumbent's speed, and 1.01x was asked for"),
        ([], "it was not compared with the incumbent"),
        ([speed("faster", 2.0, against="baseline")], "it was not compared with the incumbent"),
    ],
)
def test_anything_less_is_taken_back(verdicts: Sequence[Verdict], reason: str) -> None:
    """The outcome has the reason."""
    outcome, why, _ = decide_on_change(None, verdicts, 0.01)
    assert ("reverted", True) == (outcome, why.startswith(reason))
