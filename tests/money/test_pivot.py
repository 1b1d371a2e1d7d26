"""Go on or pivot: expected values where they are known, what it would need where they are not."""

from typing import Any

import pytest

from loop.model.index import SessionRow
from loop.model.plan import Predicted
from loop.money.decisions import no_progress, over_budget, stop_rules, weigh, weigh_all, worse
from loop.money.model import MachineOption, Options
from tests.money.test_keep_or_stop import row


def option(name: str = "go on", usd: tuple[float, float] = (150, 250), **fields: Any) -> MachineOption:
    """An option with neither probability nor value."""
    return MachineOption(name=name, usd=usd, **fields)


def of(*options: MachineOption, value_usd: float | None = None) -> Options:
    """These options."""
    return Options(format=1, question="what next", options=options, value_usd=value_usd)


def test_an_expected_value_is_probability_times_value_less_cost() -> None:
    """At both ends of the cost."""
    found = weigh(option(probability=0.5, value_usd=600))
    assert (50.0, 150.0) == found.expected_usd
    assert "pays even at its highest cost" == found.note


def test_an_unknown_probability_is_shown_as_what_it_would_have_to_be() -> None:
    """Never guessed: cost over value."""
    found = weigh(option(value_usd=1000))
    assert found.expected_usd is None
    assert "unknown probability: it pays from a probability of 15 to 25 %" == found.note


def test_what_costs_more_than_it_is_worth_pays_at_no_probability() -> None:
    """Nor at the highest cost, where only that is above the value."""
    assert "whatever the probability" in weigh(option(value_usd=100)).note
    assert "not at all at its highest cost" in weigh(option(value_usd=200)).note


def test_the_best_is_better_at_its_worst_than_the_others_at_their_best() -> None:
    """Ranges that overlap depend; what does not pay is not chosen for being the best of the bad."""
    sure = option("sure", (10, 20), probability=0.9, value_usd=200)
    close = option("close", (100, 150), probability=0.9, value_usd=300)
    bad = option("bad", (100, 200), probability=0.1, value_usd=100)
    assert "sure" == weigh_all(of(sure, bad), []).best
    assert "the expected values overlap" in weigh_all(of(sure, close), []).decision
    assert "doing none of them" in weigh_all(of(bad), []).decision


def session(name: str, ratio: float | None = 1.0, **fields: Any) -> SessionRow:
    """A session that measured `cpu` at a ratio."""
    ratios = {"cpu": ratio} if ratio is not None else {}
    return row(name, variants=("cpu",), ratios=ratios, ground=name, **fields)


def test_two_sessions_without_a_better_ratio_are_enough() -> None:
    """1 % is noise; 10 % is progress; a ratio that could not be judged is none."""
    assert no_progress([session("a"), session("b", 1.01), session("c", 0.99)]).holds
    found = no_progress([session("a"), session("b", 1.01), session("c", 1.1)])
    assert (False, "c: cpu at 1.10x, its best before was 1.01x") == (found.holds, found.why)
    assert no_progress([session("a"), session("b", 1.01), session("c", 1.1, unsure=("cpu",))]).holds


def test_what_becomes_right_is_progress() -> None:
    """As is a session that passes after one that failed."""
    wrong = {"ratio": None, "incorrect": ("cpu",), "status": "failed"}
    assert False is no_progress([session("a"), session("b", **wrong), session("c", 1.0)]).holds
    assert True is no_progress([session("a"), session("b", **wrong), session("c", **wrong)]).holds


@pytest.mark.parametrize(("spent_s", "holds"), [(89.0, False), (91.0, True)])
def test_half_a_budget_more_is_enough(spent_s: float, holds: bool) -> None:
    """Of the session under way."""
    assert holds is over_budget([], 60.0, spent_s).holds


def test_without_a_session_under_way_the_last_is_held_against_its_prediction() -> None:
    """1,800 s taken."""
    predicted = Predicted(seconds=1000, low_s=800, high_s=1200, usd=1, low_usd=1, high_usd=1)
    assert over_budget([session("a", predicted=predicted)], None, None).holds
    assert None is over_budget([session("a")], None, None).holds


def test_a_fix_that_makes_a_right_variant_wrong_is_a_reason_to_stop() -> None:
    """Its files have to have changed; who was wrong before did not get worse."""
    wrong = {"ratio": None, "incorrect": ("cpu",), "status": "failed"}
    assert worse([session("a"), session("b", **wrong)]).holds
    assert False is worse([session("a", **wrong), session("b", **wrong)]).holds
    same = session("b", **wrong).model_copy(update={"ground": "a"})
    assert False is worse([session("a"), same]).holds


def test_a_met_rule_is_said_first() -> None:
    """The rule is named in the decision."""
    found = weigh_all(None, stop_rules([session("a"), session("b"), session("c")]))
    assert found.stop
    assert found.decision.startswith("Do not go on as before: 2 sessions without measurable progress.")
