"""Charges as a table that tools for cloud costs read: the FinOps Open Cost and Usage Specification, FOCUS 1.2.

One row a charge. Columns of loop's own begin with `x_`, as the specification has it. What it cost is all there is:
billed, effective, contracted and list cost are the same, and no invoice stands behind it.
"""

import csv
import datetime
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from loop.model.ledger import Account, Spent

COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "x_Basis",
    "x_Plan",
    "x_Target",
)
SERVICES = {
    "gpu": ("Compute", "GPU held", "GPU"),
    "engineer": ("Other", "Engineer waiting", "Person"),
    "ai": ("AI and Machine Learning", "Coding agent", "Language model"),
    "energy": ("Other", "Electricity", "Energy"),
}
"""Resource to category (one of those that FOCUS allows), name and type."""
MAKERS = {"claude-code": "Anthropic", "codex": "OpenAI"}
OWN = "own"
"""Provider of what nobody sends an invoice for."""


@dataclass(frozen=True)
class Origin:
    """Whose price it was."""

    provider: str
    region: str = ""


def to_csv(accounts: Iterable[Account], spent: Iterable[Spent], clouds: Mapping[str, str]) -> str:
    """The charges of these sessions, a line each. `clouds`: rate to who rents it out, where the card says so."""
    of = {one.session: one for one in accounts}
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(of[one.session], one, origin(one, clouds)) for one in spent if one.session in of)
    return text.getvalue()


def _row(account: Account, one: Spent, where: Origin) -> dict[str, object]:
    category, service, kind = SERVICES[one.resource]
    cost = f"{one.usd:.10f}".rstrip("0").rstrip(".")
    by_time = one.seconds > 0 and one.resource != "energy"
    hours = one.seconds / 3600
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
        **_periods(account),
        "BillingAccountId": account.target,
        "BillingAccountName": account.target,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeDescription": f"{service} in session {account.session}, at {one.rate}",
        "ChargeFrequency": "Usage-Based",
        **({"ConsumedQuantity": f"{one.seconds:.3f}", "ConsumedUnit": "Seconds"} if by_time else {}),
        **({"ListUnitPrice": f"{one.usd / hours:.6g}", "PricingQuantity": f"{hours:.9f}"} if by_time else {}),
        **({"PricingUnit": "Hours"} if by_time else {}),
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), where.provider),
        "RegionId": where.region,
        "ResourceId": account.session,
        "ResourceName": account.gpu or "" if one.resource == "gpu" else "",
        "ResourceType": kind,
        "ServiceCategory": category,
        "ServiceName": service,
        "SkuId": one.rate,
        "x_Basis": one.basis,
        "x_Plan": account.plan,
        "x_Target": account.target,
    }


def origin(one: Spent, clouds: Mapping[str, str]) -> Origin:
    """Who was paid: the cloud of `<cloud>/<region>/<shape>`, the maker of an agent's model, else nobody."""
    parts = one.rate.split("/")
    if one.resource == "gpu" and len(parts) >= 3:
        return Origin(parts[0], "" if parts[1] == "any" else parts[1])
    makers = [maker for agent, maker in MAKERS.items() if agent in one.rate]
    return Origin(clouds.get(one.rate) or (makers[0] if len(makers) == 1 else OWN))


def _periods(account: Account) -> dict[str, str]:
    """The session, and its month; ends are exclusive. Nothing where it was recorded without a clock."""
    if account.started is None:
        return {}
    begun = datetime.datetime.fromisoformat(account.started).astimezone(datetime.UTC)
    month = begun.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ended = begun + datetime.timedelta(seconds=account.seconds)
    return {
        "ChargePeriodStart": _iso(begun),
        "ChargePeriodEnd": _iso(ended),
        "BillingPeriodStart": _iso(month),
        "BillingPeriodEnd": _iso((month + datetime.timedelta(days=32)).replace(day=1)),
    }


def _iso(at: datetime.datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def rows_of(text: str) -> Iterator[dict[str, str]]:
    """The rows of such a table, as another program reads them."""
    return iter(csv.DictReader(io.StringIO(text)))
