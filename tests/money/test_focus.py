"""Charges in the columns of FOCUS 1.2, as another program reads them."""

import datetime
from typing import Any

import pytest

from loop.model.ledger import Account, Spent
from loop.money.focus import COLUMNS, rows_of, to_csv

MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
}  # fmt: skip
"""Columns that every FOCUS 1.2 dataset has."""
ACCOUNT = Account(
    session="s1", started="2026-11-30T23:59:30+00:00", target="attention", plan="quick", device="cuda",
    gpu="NVIDIA L4", status="passed", seconds=90.0, recorded=False, energy_j=None, accepted=0, accepted_us=None,
    unmeasured={}, judged={}, notes=(),
)  # fmt: skip
CHARGES = (
    Spent("s1", "gpu", "gcp/us-central1/g2-standard-4", 90.0, 0.0176708, "measured"),
    Spent("s1", "engineer", "engineer", 90.0, 1.25, "measured"),
    Spent("s1", "ai", "claude-code, its logs", 0.0, 0.031, "measured"),
    Spent("s1", "ai", "stated", 0.0, 0.5, "stated"),
)


def table(*charges: Spent, account: Account = ACCOUNT, **clouds: str) -> list[dict[str, Any]]:
    """The rows that come out."""
    return list(rows_of(to_csv([account], charges, clouds)))


def test_every_mandatory_column_is_there_and_own_ones_are_marked() -> None:
    """Columns of loop's own begin with x_."""
    assert set(COLUMNS) >= MANDATORY
    assert {"x_Basis", "x_Plan", "x_Target"} == {name for name in COLUMNS if name.startswith("x_")}
    assert list(COLUMNS) == list(table(*CHARGES)[0])


def test_a_gpu_is_charged_by_its_cloud_and_region() -> None:
    """With quantity, unit price and machine."""
    (row, *_) = table(*CHARGES)
    assert ("gcp", "us-central1", "NVIDIA L4") == (row["ProviderName"], row["RegionId"], row["ResourceName"])
    assert ("Compute", "Usage", "USD") == (row["ServiceCategory"], row["ChargeCategory"], row["BillingCurrency"])
    assert pytest.approx(0.0176708) == float(row["BilledCost"]) == float(row["ListCost"])
    assert pytest.approx(0.0176708) == float(row["PricingQuantity"]) * float(row["ListUnitPrice"])


def test_periods_are_utc_and_end_exclusively() -> None:
    """A session over the end of a month belongs to the month in which it began."""
    (row, *_) = table(*CHARGES)
    assert ("2026-11-30T23:59:30Z", "2026-12-01T00:01:00Z") == (row["ChargePeriodStart"], row["ChargePeriodEnd"])
    assert ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z") == (row["BillingPeriodStart"], row["BillingPeriodEnd"])
    begun, ended = (datetime.datetime.fromisoformat(row[f"ChargePeriod{end}"]) for end in ("Start", "End"))
    assert begun < ended


def test_ai_is_charged_by_the_maker_of_its_model_and_an_hour_of_ones_own_by_nobody() -> None:
    """What is stated is marked."""
    rows = table(*CHARGES)
    assert ["gcp", "own", "Anthropic", "own"] == [row["ProviderName"] for row in rows]
    assert ["measured", "measured", "measured", "stated"] == [row["x_Basis"] for row in rows]
    assert {""} == {rows[2][name] for name in ("PricingQuantity", "ConsumedQuantity", "ListUnitPrice")}


def test_a_rate_of_the_project_s_own_says_whose_it_is() -> None:
    """The card knows the cloud of a rate without slashes in its name."""
    (row,) = table(Spent("s1", "gpu", "ours", 90.0, 1.0, "measured"), ours="hetzner")
    assert "hetzner" == row["ProviderName"]


def test_a_session_without_a_clock_has_no_period() -> None:
    """Recorded elsewhere: empty, and not made up."""
    (row,) = table(CHARGES[0], account=ACCOUNT._replace(started=None))
    assert "" == row["ChargePeriodStart"] == row["BillingPeriodEnd"]


def test_the_sum_of_the_rows_is_that_of_the_charges() -> None:
    """Nothing is lost in writing."""
    assert pytest.approx(sum(one.usd for one in CHARGES)) == sum(
        float(row["BilledCost"]) for row in table(*CHARGES)
    )
