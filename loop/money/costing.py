"""What did a session cost, and what did its patterns avoid? Measured use, dated prices, labelled evidence."""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from loop.model.history import History
from loop.model.money import Bill, EvidenceClass, Gains, RateCard, Saving
from loop.model.record import DeviceName, Finished
from loop.money.charging import Used, charge, rates_of
from loop.money.savings import Applied as Applied
from loop.money.savings import applied as applied
from loop.money.savings import savings
from loop.money.savings import unchanged as unchanged


def bill(
    used: Used | float,
    device: DeviceName,
    card: RateCard,
    patterns: Sequence[Applied] = (),
    histories: Sequence[History] = (),
    own_without_s: Mapping[str, Sequence[float]] | None = None,
    repeated: Mapping[str, str] | None = None,
    *,
    finished: Iterable[Finished] = (),
    gains: Gains | None = None,
    notes: Sequence[str] = (),
    today: datetime.date | None = None,
) -> Bill:
    """Cost and saving of a session.

    `used`: what it used, or its seconds alone. A GPU is charged only where the session ran on one; whoever waits
    is charged for every second.
    `own_without_s`: pattern to the seconds this project's own sessions took where they did without it.
    `repeated`: pattern to the earlier session that had its outcome already; such a pattern saved nothing.
    `finished`: its ended steps, for builds that the cache spared.
    """
    told = used if isinstance(used, Used) else Used(seconds=used, device=device)
    charged = charge(told, card, today)
    usd = sum(one.usd for one in charged.charges)
    per_minute = sum(rate.usd_per_hour for rate in rates_of(card, device, told.gpu)) / 60
    avoided = savings(patterns, histories, own_without_s or {}, repeated or {}, per_minute, tuple(finished))
    saved = by_class(avoided)
    return Bill(
        charges=tuple(charged.charges),
        unmeasured=tuple(charged.unmeasured),
        savings=avoided,
        usd=usd,
        saved_usd=saved,
        roi={evidence: (value - usd) / usd for evidence, value in saved.items()} if usd > 0 else {},
        ai=told.ai,
        energy_j=told.energy_j,
        gains=gains or Gains(),
        notes=(*notes, *charged.notes),
    )


def by_class(savings: Iterable[Saving]) -> dict[EvidenceClass, float]:
    """Dollars saved, class of evidence by class; they are never added up."""
    totals: dict[EvidenceClass, float] = {}
    for saving in savings:
        totals[saving.evidence] = totals.get(saving.evidence, 0.0) + saving.usd
    return totals
