"""Money: measured use times dated prices, what was spared as measured here, and priors in no sum."""

from typing import Any

import pytest

from loop.base.places import project, shipped
from loop.library.rates import rates
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.jobs import HostUse
from loop.model.money import Bill, Unmeasured
from loop.model.pattern import Pattern
from loop.money import bill as billing
from loop.money.bill import judged_before, priors
from loop.money.charging import Used
from loop.money.section import cost, money, money_line, roi
from tests.conftest import ROOT
from tests.makers import make_bill, make_build, make_built, make_card, make_finished, make_history, make_pattern
from tests.money.test_ledger import session

SPARED = make_built(make_build(cached=True, seconds=6.0))


def bill(seconds: float, device: Device, *given: Any, **named: Any) -> Bill:
    """The bill of a session that took so long."""
    return billing.bill(Used(seconds, device), *given, **named)


def environment(**without: object) -> Pattern:
    """The environment pattern with a known cost of doing without it."""
    fields = {"history": "environment_minutes", "evidence": "history", **without}
    return make_pattern("environment-validation", ("torch",), without=fields)


def test_who_is_stated_to_attend_is_charged_for_every_second() -> None:
    """90 s of an engineer at a cent a second are 90 cents; no GPU ran, none is charged."""
    made = bill(90.0, "cpu", make_card(waiting=None).attended(True))
    assert [("engineer", 90.0, "stated")] == [(one.resource, one.seconds, one.basis) for one in made.charges]
    assert pytest.approx(0.90) == made.usd


def test_a_gpu_is_charged_for_a_minute_at_least() -> None:
    """A cloud bills ten seconds as sixty, and then by the second."""
    assert [60.0, 10.0] == [charge.seconds for charge in bill(10.0, "cuda", make_card()).charges]
    assert [61.0, 61.0] == [charge.seconds for charge in bill(61.0, "cuda", make_card()).charges]


def test_compiling_that_the_cache_spared_is_measured() -> None:
    """Six seconds that the same build took when it was compiled: 6 cents at a cent a second."""
    output = make_built(make_build(cached=True, seconds=6.0))
    built, again = (make_finished("build", run=run, output=output) for run in (1, 2))
    made = bill(60.0, "cpu", make_card(), [built, again])
    (saving,) = made.savings
    assert (pytest.approx(0.06), "cpu from the cache; compiling took 6.0 s then") == (saving.usd, saving.source)
    assert pytest.approx((0.06 - 0.60) / 0.60) == made.roi
    assert "ROI -0.900: 6.0 s spared, measured here, are worth $0.060" == roi(made)


def test_a_build_of_this_very_session_spares_nothing() -> None:
    """Compiled in its first attempt, taken from the cache in its second: it was paid for here."""
    records = [
        make_finished("build", output=make_built(make_build())),
        make_finished("build", attempt=2, output=make_built(make_build(cached=True))),
    ]
    assert () == bill(60.0, "cpu", make_card(), records).savings


@pytest.mark.parametrize(("action", "builds"), [("kernel.tries", {"cpu": "b"}), ("bisect.search", 7)])
def test_what_other_actions_call_builds_is_no_build(action: str, builds: object) -> None:
    """A try's builds are names, a search's a number."""
    record = make_finished("other", action=action, output={"ok": True, "message": "", "builds": builds})
    assert () == bill(60.0, "cpu", make_card(), [record]).savings


def test_what_nobody_measured_is_not_zero() -> None:
    """AI and energy stand among the unmeasured, with a reason."""
    made = bill(90.0, "cpu", make_card())
    assert ["ai", "energy"] == [one.resource for one in made.unmeasured]
    assert all(one.reason for one in made.unmeasured)


def test_on_a_processor_with_nothing_stated_nothing_is_billed() -> None:
    """No dollars, no return: the time of the machine is said instead."""
    made = bill(109.0, "cpu", make_card(waiting=None), [make_finished("build", output=SPARED)])
    said = "Cost: nothing was billed; 1 min 49 s of this machine. ROI not measurable yet: nothing was billed."
    assert said == money_line(made, 109.0)
    assert ((), None) == (made.charges, made.roi)


def test_the_line_says_what_was_measured_and_what_was_stated() -> None:
    """A GPU whose price nobody knows is named beside it: it was not free."""
    made = bill(3600.0, "cuda", make_card())
    said = "$36.72 (GPU $0.72 measured, engineer $36.00 stated)"
    assert said == cost(made, 3600.0)
    assert "ROI not measurable yet: no time without a pattern was measured here" == roi(made)
    no_gpu = Unmeasured(resource="gpu", reason="the card charges another one")
    assert "nothing was billed; GPU: price unknown" == cost(make_bill(unmeasured=(no_gpu,)), 9.0)


def test_machines_of_jobs_stand_in_the_line_and_in_the_table() -> None:
    """The line has one sum for all GPUs; the table a row for each machine, with its price and time."""
    hosts = (HostUse(host="h100", seconds=1800.0, usd=1.5), HostUse(host="l4", seconds=3600.0, usd=0.7))
    made = billing.bill(Used(3600.0, "cuda", hosts=hosts), make_card(waiting=None))
    assert "$2.92 (GPU $2.92 measured)" == cost(made, 3600.0)
    table = money(made, 3600.0)["charges"]
    assert [("GPU", "jobs on h100", "$3.00", "30 min 0 s", "$1.50", "measured")] == [
        row for row in table.rows if "h100" in row[1]
    ]


def run(pattern: str, status: str, found: bool = False) -> dict[str, Any]:
    """A run of a pattern."""
    return {"pattern": pattern, "status": status, "seconds": 1, "started": None, "whole": True, "found": found}


def ended(ground: str, status: str = "passed", found: bool = False) -> SessionRow:
    """A session in which the environment was looked at."""
    runs = [run("environment-validation", status, found)]
    return session(ground, ground=ground, runs=runs, status=status)


def test_a_prior_is_weighed_by_how_often_such_a_failure_occurs_and_is_in_no_sum() -> None:
    """Rows of 60 and 67 minutes; one failure in three sessions, on files that passed in another."""
    rows = [ended("a", "failed", True), ended("a"), ended("b")]
    (prior,) = priors([environment()], [make_history()], rows)
    assert (63.5, 1, 3, "N 60, M 67 min") == (prior.minutes, prior.failures, prior.sessions, prior.source)
    assert pytest.approx(1.5 / 4) == prior.share
    made = bill(60.0, "cpu", make_card(), priors=[prior])
    assert ((), 0.0, None) == (made.savings, made.saved_usd, made.roi)


def test_the_authors_word_counts_only_where_no_row_does() -> None:
    """Without a history it is the prior."""
    (prior,) = priors([environment(minutes=50.0)], (), ())
    assert (50.0, 0.5) == (prior.minutes, prior.share)


def test_a_wrong_edit_and_its_rerun_raise_nothing() -> None:
    """Files that never passed were edited wrongly: no failure. Files of before spare nothing."""
    before = [ended("a"), ended("b")]
    after = [*before, ended("wrong", "failed", True), ended("a")]
    shares = [priors([environment()], [make_history()], rows)[0].share for rows in (before, after)]
    assert shares[1] < shares[0]
    assert [True, False] == [judged_before(before, ground) for ground in ("a", "new")]


def test_a_bill_of_an_older_version_is_read_by_today_s_rules() -> None:
    """What other projects lost is no saving; an engineer's time was stated at best."""
    old = {"pattern": "p", "source": "s", "minutes": 1.0, "minutes_low": 1.0, "minutes_high": 1.0, "usd": 2.0}
    charge = {"resource": "engineer", "rate": "engineer", "seconds": 36.0, "usd": 0.5, "basis": "measured"}
    fields = {"charges": [charge], "unmeasured": [], "usd": 0.5}
    sums = {"saved_usd": {"history": 50.0, "measured": 2.0}, "roi": {"history": 99.0, "measured": 3.0}}
    savings = [old | {"evidence": "history", "usd": 50.0}, old | {"evidence": "measured"}]
    made = Bill.model_validate({**fields, **sums, "savings": savings})
    assert ([2.0], 2.0, 3.0) == ([one.usd for one in made.savings], made.saved_usd, made.roi)
    assert ["stated"] == [one.basis for one in made.charges]


def test_the_shipped_rate_card_is_complete() -> None:
    """The GPU's rate is the whole machine's; nobody attends, until somebody states it."""
    card = rates(project(None, ROOT))
    gpu, attending = card.find(card.gpu), card.attended(True).find(card.attended(True).waiting)
    assert gpu is not None
    assert attending is not None
    assert (0.70683, 50.0, None) == (gpu.usd_per_hour, attending.usd_per_hour, card.waiting)
    assert len(card.rates) == len({rate.name for rate in card.rates})
    assert shipped("sessions/rates.yaml").read_text().startswith("# yaml-language-server: $schema=")
