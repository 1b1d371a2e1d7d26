"""Money: measured use times dated prices, and what was spared as measured here."""

from typing import Any

import pytest

from loop.model.dtypes import Device
from loop.model.money import Bill
from loop.money import bill as billing
from loop.money.bill import SessionUse
from loop.report.bills import roi_text
from tests.makers import make_build, make_built, make_card, make_finished


def bill(seconds: float, device: Device, *given: Any, **named: Any) -> Bill:
    """The bill of a session that took so long."""
    return billing.make_bill(SessionUse(seconds, device), *given, **named)


def test_who_is_stated_to_attend_is_charged_for_every_second() -> None:
    """90 s of an engineer at a cent a second are 90 cents; no GPU ran, none is charged."""
    made = bill(90.0, "cpu", make_card(waiting=None).with_waiting_person(True))
    assert [("engineer", 90.0, "stated")] == [(one.resource, one.seconds, one.basis) for one in made.charges]
    assert pytest.approx(0.90) == made.usd


def test_compiling_that_the_cache_spared_is_measured() -> None:
    """Six seconds that the same build took when it was compiled: 6 cents at a cent a second."""
    output = make_built(make_build(cached=True, seconds=6.0))
    built, again = (make_finished("build", run=run, output=output) for run in (1, 2))
    made = bill(60.0, "cpu", make_card(), [built, again])
    (saving,) = made.savings
    assert (pytest.approx(0.06), "cpu from the cache; compiling took 6.0 s then") == (saving.usd, saving.source)
    assert pytest.approx((0.06 - 0.60) / 0.60) == made.roi
    assert "ROI -0.900: 6.0 s spared, measured here, are worth $0.060" == roi_text(made)
