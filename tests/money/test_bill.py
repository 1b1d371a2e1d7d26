"""Money: measured use times dated prices, savings by class of evidence, nothing counted twice."""

from typing import Any

import pytest

from loop.base.places import project, shipped
from loop.library.rates import rates
from loop.model.dtypes import Device
from loop.model.money import Bill
from loop.model.pattern import Pattern
from loop.money import bill as billing
from loop.money.charging import Used
from loop.money.savings import Applied, applied, unchanged
from tests.conftest import ROOT
from tests.makers import make_build, make_built, make_card, make_finished, make_history, make_pattern, make_plan


def bill(seconds: float, device: Device, *given: Any, **named: Any) -> Bill:
    """The bill of a session that took so long."""
    return billing.bill(Used(seconds, device), *given, **named)


def environment(**without: object) -> Pattern:
    """The environment pattern with a known cost of doing without it."""
    fields = {"history": "environment_minutes", "evidence": "history", **without}
    return make_pattern("environment-validation", ("torch",), without=fields)


def test_waiting_is_charged_for_every_second() -> None:
    """90 s of an engineer at a cent a second are 90 cents; no GPU ran, none is charged."""
    made = bill(90.0, "cpu", make_card())
    assert [("engineer", 90.0)] == [(charge.resource, charge.seconds) for charge in made.charges]
    assert pytest.approx(0.90) == made.usd


def test_a_gpu_is_charged_for_a_minute_at_least() -> None:
    """A cloud bills ten seconds as sixty, and then by the second."""
    assert [60.0, 10.0] == [charge.seconds for charge in bill(10.0, "cuda", make_card()).charges]
    assert [61.0, 61.0] == [charge.seconds for charge in bill(61.0, "cuda", make_card()).charges]


def test_compiling_that_the_cache_spared_is_measured() -> None:
    """Six seconds that the same build took when it was compiled: 6 cents at a cent a second, and no interval."""
    output = make_built(make_build(cached=True, seconds=6.0))
    built, again = (make_finished("build", run=run, output=output) for run in (1, 2))
    made = bill(60.0, "cpu", make_card(), finished=[built, again])
    (saving,) = made.savings
    assert ("measured", pytest.approx(0.06)) == (saving.evidence, saving.usd)
    assert saving.interval_usd == (saving.usd, saving.usd)
    assert "cpu from the cache; compiling took 6.0 s then" == saving.source


def test_a_build_of_this_very_session_spares_nothing() -> None:
    """Compiled in its first attempt, taken from the cache in its second: it was paid for here."""
    records = [
        make_finished("build", output=make_built(make_build())),
        make_finished("build", attempt=2, output=make_built(make_build(cached=True))),
    ]
    assert () == bill(60.0, "cpu", make_card(), finished=records).savings


@pytest.mark.parametrize(("action", "builds"), [("kernel.tries", {"cpu": "b"}), ("bisect.search", 7)])
def test_what_other_actions_call_builds_is_no_build(action: str, builds: object) -> None:
    """A try's builds are names, a search's a number."""
    record = make_finished("other", action=action, output={"ok": True, "message": "", "builds": builds})
    assert () == bill(60.0, "cpu", make_card(), finished=[record]).savings


def test_what_nobody_measured_is_not_zero() -> None:
    """AI and energy stand among the unmeasured, with a reason."""
    made = bill(90.0, "cpu", make_card())
    assert ["ai", "energy"] == [one.resource for one in made.unmeasured]
    assert all(one.reason for one in made.unmeasured)


def test_a_saving_from_the_history_is_the_median_row_less_the_time_taken() -> None:
    """Rows of 60 and 67 minutes, three minutes taken: 60.5 avoided, 57 to 64, at 60 cents a minute."""
    made = bill(180.0, "cpu", make_card(), [Applied(environment(), 180.0)], [make_history()])
    (saving,) = made.savings
    assert (60.5, 57.0, 64.0) == (saving.minutes, saving.minutes_low, saving.minutes_high)
    assert ("history", "N 60, M 67 min (recorded on an NVIDIA L4)") == (saving.evidence, saving.source)
    assert pytest.approx(60.5 * 0.60) == saving.usd
    assert pytest.approx((60.5 * 0.60 - 1.80) / 1.80) == made.roi["history"]


def test_on_a_gpu_the_avoided_minutes_are_worth_the_gpu_as_well() -> None:
    """The GPU would have been held all that time."""
    made = bill(180.0, "cuda", make_card(), [Applied(environment(), 180.0)], [make_history()])
    assert pytest.approx(60.5 * (0.60 + 0.012)) == made.savings[0].usd


def test_the_authors_word_counts_only_where_no_row_does() -> None:
    """Without a history the prior is taken, and is labelled as one."""
    made = bill(60.0, "cpu", make_card(), [Applied(environment(minutes=50.0), 60.0)])
    assert [("prior", 49.0)] == [(saving.evidence, saving.minutes) for saving in made.savings]


def test_classes_of_evidence_are_never_added_up() -> None:
    """A prior beside a row of the history: two sums, two returns."""
    other = make_pattern("explicit-instantiation", ("list",), without={"minutes": 45.0, "evidence": "its author"})
    made = bill(60.0, "cpu", make_card(), [Applied(environment(), 0.0), Applied(other, 0.0)], [make_history()])
    assert pytest.approx({"history": 63.5 * 0.6, "prior": 45 * 0.6}) == made.saved_usd
    assert {"history", "prior"} == set(made.roi)


def test_return_is_undefined_where_nothing_was_charged() -> None:
    """Division by nothing is left out, not called infinite."""
    made = bill(0.0, "cpu", make_card(), [Applied(environment(), 0.0)], [make_history()])
    assert {} == made.roi
    assert 0.0 == made.usd


def test_the_minutes_of_a_recorded_session_are_given_away_once() -> None:
    """Session N took 180 minutes: 60 and 120 of them are spoken for, so its baseline saves nothing more."""
    build = make_pattern("build", ("b",), without={"history": "debugging_build_minutes", "evidence": "e"})
    base = make_pattern("base", ("b",), without={"history": "time_to_baseline_minutes", "evidence": "e"})
    used = [Applied(environment(), 0.0), Applied(build, 0.0), Applied(base, 0.0)]
    made = bill(60.0, "cpu", make_card(), used, [make_history()])
    assert [63.5, 120.0, 0.0] == [saving.minutes for saving in made.savings]
    assert "N 0 of 120 min (recorded on an NVIDIA L4; the rest is counted above)" == made.savings[2].source


def test_only_patterns_that_passed_whole_are_applied() -> None:
    """A failed step, or one without a record, saves nothing; a skipped one does no harm."""
    plan = make_plan(make_pattern())
    verify, measure = make_finished("verify"), make_finished("measure", seconds=3.0)
    assert [5.0] == [one.seconds for one in applied([verify, measure], plan)]
    assert () == applied([verify], plan)
    assert () == applied([verify, make_finished("measure", status="failed")], plan)
    assert [2.0] == [
        one.seconds for one in applied([verify, make_finished("measure", status="skipped", seconds=0)], plan)
    ]


def test_a_pattern_that_had_nothing_to_do_saves_nothing() -> None:
    """Static assertions without a CUDA kernel: all steps pass, and no outcome was another for it."""
    plan = make_plan(make_pattern())
    nothing = [make_finished(name, output={"nothing_done": True}) for name in ("verify", "measure")]
    assert () == applied(nothing, plan)
    assert 1 == len(applied([nothing[0], make_finished("measure")], plan))


def test_a_mended_attempt_counts_with_the_time_of_both() -> None:
    """The last attempt says whether it passed; the first one took time all the same."""
    attempts = [
        make_finished("verify", status="failed"),
        make_finished("verify", attempt=2),
        make_finished("measure"),
    ]
    assert [6.0] == [one.seconds for one in applied(attempts, make_plan(make_pattern()))]


def test_the_shipped_rate_card_is_complete() -> None:
    """Rates that it charges at exist, cover GPU and waiting, and are the whole machine's."""
    card = rates(project(None, ROOT))
    gpu, waiting = card.find(card.gpu), card.find(card.waiting)
    assert gpu is not None
    assert waiting is not None
    assert (0.70683, 50.0) == (gpu.usd_per_hour, waiting.usd_per_hour)
    assert len(card.rates) == len({rate.name for rate in card.rates})
    assert shipped("sessions/rates.yaml").read_text().startswith("# yaml-language-server: $schema=")


def test_a_pattern_on_the_same_ground_as_before_saved_nothing() -> None:
    """An environment and a build that an earlier session had already cannot save their hour again."""
    same = make_finished("build", pattern="unit", output={"identity": "cpu=1"})
    measured = make_finished("measure", pattern="baseline-first")
    assert {"unit": "s2", "baseline-first": "s2"} == unchanged(
        [same, measured], {"s1": [same], "s2": [same, measured]}, {"s1", "s2"}
    )
    assert {"unit": "s2"} == unchanged([same, measured], {"s2": [same, measured]}, set())
    edited = make_finished("build", pattern="unit", output={"identity": "cpu=2"})
    assert {} == unchanged([edited, measured], {"s1": [same, measured]}, {"s1"})


def test_a_repeated_pattern_is_listed_with_nothing_avoided() -> None:
    """The row stays, so that a reader sees why the total is smaller than last time."""
    used = [Applied(environment(), 60.0)]
    made = bill(90.0, "cpu", make_card(), used, [make_history()], repeated={"environment-validation": "s1"})
    assert [(0.0, "nothing has changed since session s1")] == [(s.minutes, s.source) for s in made.savings]
    assert {"history": 0.0} == made.saved_usd
