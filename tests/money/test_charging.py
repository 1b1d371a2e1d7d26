"""Money: measured use times dated prices; unknown use is named, and old prices are marked."""

import datetime
from typing import Any

import pytest

from loop.model.dtypes import Device
from loop.model.money import AiUse, Bill, MachineRate, RateCard
from loop.money import bill as billing
from loop.money.bill import SessionUse, make_bill, rate_for_gpu
from loop.report.format import cost_and_return
from tests.makers import make_build, make_built, make_card, make_finished

TODAY = datetime.date(2026, 11, 21)
L4 = {"gpu": "NVIDIA L4", "cloud": "gcp", "region": "r", "shape": "g2", "source": "s", "as_of": TODAY}


def card(**fields: object) -> RateCard:
    """A card with a machine of GCP, and one of a cloud that charges by the second."""
    gcp = MachineRate.model_validate({**L4, "on_demand": 0.72, "spot": 0.36})
    aws = MachineRate.model_validate({**L4, "cloud": "aws", "on_demand": 0.36})
    return make_card(**{"machines": (gcp, aws), "gpu": "gcp/r/g2", **fields})


def dollars(charged: Bill) -> dict[str, float]:
    """Dollars by resource."""
    return {charge.resource: charge.usd for charge in charged.charges}


def unknown(charged: Bill) -> dict[str, str]:
    """Reasons by resource."""
    return {gap.resource: gap.reason for gap in charged.unmeasured}


def test_a_gpu_is_charged_at_its_own_price() -> None:
    """GCP a minute at least, then seconds; AWS by seconds; an H200 is not charged as an L4."""
    assert pytest.approx(0.012) == dollars(make_bill(SessionUse(10.0, "cuda"), card()))["gpu"]
    assert pytest.approx(0.0122) == dollars(make_bill(SessionUse(61.0, "cuda"), card()))["gpu"]
    assert pytest.approx(0.001) == dollars(make_bill(SessionUse(10.0, "cuda"), card(gpu="aws/r/g2")))["gpu"]
    charged = make_bill(SessionUse(3600.0, "cuda", gpu="NVIDIA H200"), card())
    assert "gpu" not in dollars(charged)
    assert "NVIDIA L4; this GPU is NVIDIA H200, of which it has no price" in unknown(charged)["gpu"]


@pytest.mark.parametrize(
    ("expected", "gpu"),
    [
        (True, "NVIDIA L4"),
        (True, "nvidia l4"),
        (False, "NVIDIA L40S"),
        (False, "NVIDIA H100 80GB HBM3"),
        (True, None),
    ],
)
def test_a_rate_is_for_the_gpu_that_it_names(expected: bool, gpu: str | None) -> None:
    """Whole words are compared: an L40S is no L4."""
    assert expected == (rate_for_gpu(card(), gpu) is not None)


def test_measured_ai_goes_before_the_card_s_hours() -> None:
    """The card's hourly rate only counts without a measurement, and is marked as stated."""
    stated = make_card().rates[0].model_copy(update={"name": "guess", "resource": "ai", "usd_per_hour": 0.8})
    priced = card(rates=(*make_card().rates, stated), ai="guess")
    (guessed,) = (row for row in make_bill(SessionUse(1800.0, "cpu"), priced).charges if row.resource == "ai")
    assert (pytest.approx(0.4), "stated") == (guessed.usd, guessed.basis)
    result = AiUse(source="result", agents=("codex",), usd=0.03)
    (measured,) = (
        row for row in make_bill(SessionUse(1800.0, "cpu", ai=result), priced).charges if row.resource == "ai"
    )
    assert (0.03, "measured", "codex, its own result") == (measured.usd, measured.basis, measured.rate)


def test_a_price_older_than_thirty_days_is_said_to_be() -> None:
    """Only prices of charged items are marked; an engineer's hour is not."""
    old = TODAY + datetime.timedelta(days=31)
    assert () == make_bill(SessionUse(60.0, "cuda"), card(), today=TODAY + datetime.timedelta(days=30)).notes
    (note,) = make_bill(SessionUse(60.0, "cuda"), card(), today=old).notes
    assert "the price of gcp/r/g2 is 31 days old: look it up and set it in rates.yaml" == note
    assert () == make_bill(SessionUse(60.0, "cpu"), card(), today=old).notes
    (ahead,) = make_bill(SessionUse(60.0, "cuda"), card(), today=TODAY - datetime.timedelta(days=1)).notes
    assert "yet to come" in ahead


def bill(seconds: float, device: Device, *terms: Any, **named: Any) -> Bill:
    """The bill of a session that took so long."""
    return billing.make_bill(SessionUse(seconds, device), *terms, **named)


def test_attendance_and_spared_compiling_are_priced() -> None:
    """90 s of an engineer are 90 cents; six seconds that the cache spared are six."""
    total = bill(90.0, "cpu", make_card(waiting=None).with_waiting_person(is_attended=True))
    assert [("engineer", 90.0, "stated")] == [(row.resource, row.seconds, row.basis) for row in total.charges]
    assert pytest.approx(0.90) == total.usd
    output = make_built(make_build(cached=True, seconds=6.0))
    built, second = (make_finished("build", run=run, output=output) for run in (1, 2))
    total = bill(60.0, "cpu", make_card(), [built, second])
    (saving,) = total.savings
    assert (pytest.approx(0.06), "cpu from the cache; compiling took 6.0 s then") == (saving.usd, saving.source)
    assert pytest.approx((0.06 - 0.60) / 0.60) == total.roi
    assert "ROI -0.900: 6 s spared, measured here, are worth $0.060." in cost_and_return(total, 60.0)
