"""Go on or pivot: expected values where they are known, what it would need where they are not."""

from typing import Any

from loop.model.index import SessionRow
from loop.money import decisions
from loop.money.decisions import check_correctness, check_progress, check_stop_rules, weigh_option, weigh_pivot
from tests.money.test_keep_or_stop import row


def option(name: str = "go on", usd: tuple[float, float] = (150, 250), **fields: Any) -> decisions.MachineOption:
    """An option with neither probability nor value."""
    return decisions.MachineOption(name=name, usd=usd, **fields)


def of(*options: decisions.MachineOption, value_usd: float | None = None) -> decisions.Options:
    """These options."""
    return decisions.Options(format=1, question="what next", options=options, value_usd=value_usd)


def test_the_best_is_better_at_its_worst_than_the_others_at_their_best() -> None:
    """Probability times value less cost, at both ends; what does not pay is not chosen."""
    found = weigh_option(option(probability=0.5, value_usd=600))
    assert (50.0, 150.0) == found.expected_usd
    assert "pays even at its highest cost" == found.note
    sure = option("sure", (10, 20), probability=0.9, value_usd=200)
    close = option("close", (100, 150), probability=0.9, value_usd=300)
    bad = option("bad", (100, 200), probability=0.1, value_usd=100)
    assert "sure" == weigh_pivot(of(sure, bad), []).best
    assert "the expected values overlap" in weigh_pivot(of(sure, close), []).decision
    assert "doing none of them" in weigh_pivot(of(bad), []).decision


def session(name: str, ratio: float | None = 1.0, **fields: Any) -> SessionRow:
    """A session that measured `cpu` at a ratio."""
    ratios = {"cpu": ratio} if ratio is not None else {}
    return row(name, variants=("cpu",), ratios=ratios, ground=name, **fields)


def test_two_sessions_without_a_better_ratio_are_enough() -> None:
    """1 % is noise, 10 % progress; a ratio not judged is none. A met rule is said first."""
    assert check_progress([session("a"), session("b", 1.01), session("c", 0.99)]).holds
    found = check_progress([session("a"), session("b", 1.01), session("c", 1.1)])
    assert (False, "c: cpu at 1.10x, its best before was 1.01x") == (found.holds, found.why)
    assert check_progress([session("a"), session("b", 1.01), session("c", 1.1, inconclusive=("cpu",))]).holds
    found = weigh_pivot(None, check_stop_rules([session("a"), session("b"), session("c")]))
    assert found.stop
    assert found.decision.startswith("Do not go on as before: 2 sessions without measurable progress.")


def test_a_fix_that_makes_a_right_variant_wrong_is_a_reason_to_stop() -> None:
    """Its files have to have changed; who was wrong before did not get worse."""
    wrong = {"ratio": None, "incorrect": ("cpu",), "status": "failed"}
    assert check_correctness([session("a"), session("b", **wrong)]).holds
    assert False is check_correctness([session("a", **wrong), session("b", **wrong)]).holds
    same = session("b", **wrong).model_copy(update={"ground": "a"})
    assert False is check_correctness([session("a"), same]).holds
