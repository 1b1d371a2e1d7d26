"""Continue or pivot: expected values if they are known, else the values that a decision would need."""

from typing import Any

from loop.model.index import SessionRow
from loop.money import decisions
from loop.money.decisions import check_correctness, check_progress, check_stop_rules, weigh_pivot
from tests.money.test_keep_or_stop import row


def option(name: str = "go on", usd: tuple[float, float] = (150, 250), **fields: Any) -> decisions.MachineOption:
    """An option with neither probability nor value."""
    return decisions.MachineOption(name=name, usd=usd, **fields)


def pivot_options(*options: decisions.MachineOption, value_usd: float | None = None) -> decisions.Options:
    """These options."""
    return decisions.Options(format=1, question="what next", options=options, value_usd=value_usd)


def test_the_best_is_better_at_its_worst_than_the_others_at_their_best() -> None:
    """The value is probability times value less cost, at both ends; an option that does not pay is not chosen."""
    weighed = decisions.OptionValue.weigh(option(probability=0.5, value_usd=600))
    assert (50.0, 150.0) == weighed.expected_usd
    assert "pays even at its highest cost" == weighed.note
    sure = option("sure", (10, 20), probability=0.9, value_usd=200)
    close = option("close", (100, 150), probability=0.9, value_usd=300)
    bad = option("bad", (100, 200), probability=0.1, value_usd=100)
    assert "sure" == weigh_pivot(pivot_options(sure, bad), []).best
    assert "the expected values overlap" in weigh_pivot(pivot_options(sure, close), []).decision
    assert "doing none" in weigh_pivot(pivot_options(bad), []).decision


def session(name: str, ratio: float | None = 1.0, **fields: Any) -> SessionRow:
    """A session that measured `cpu` at a ratio."""
    ratios = {"cpu": ratio} if ratio is not None else {}
    return row(name, variants=("cpu",), ratios=ratios, ground=name, **fields)


def test_two_sessions_without_a_better_ratio_are_enough() -> None:
    """1 % counts as noise, 10 % as progress; an inconclusive ratio is no progress. A met rule is named first."""
    assert check_progress([session("a"), session("b", 1.01), session("c", 0.99)]).holds
    progress = check_progress([session("a"), session("b", 1.01), session("c", 1.1)])
    assert (False, "c: cpu at 1.10x, its best before was 1.01x") == (progress.holds, progress.why)
    assert check_progress([session("a"), session("b", 1.01), session("c", 1.1, inconclusive=("cpu",))]).holds
    pivot = weigh_pivot(None, check_stop_rules([session("a"), session("b"), session("c")]))
    assert pivot.stop
    assert pivot.decision.startswith("Do not go on as before: 2 sessions without measurable progress.")


def test_a_fix_that_makes_a_right_variant_wrong_is_a_reason_to_stop() -> None:
    """The files have to differ, and a variant that was wrong before does not count."""
    wrong = {"ratio": None, "incorrect": ("cpu",), "status": "failed"}
    assert check_correctness([session("a"), session("b", **wrong)]).holds
    assert False is check_correctness([session("a", **wrong), session("b", **wrong)]).holds
    same = session("b", **wrong).model_copy(update={"ground": "a"})
    assert False is check_correctness([session("a"), same]).holds
